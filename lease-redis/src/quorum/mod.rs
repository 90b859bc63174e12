//! Leases on a majority of independent servers.
//!
//! Start with [`RedisQuorum`] below and its lock operations in [`store`]. [`builder`] connects to servers.
//! [`obtain`] proposes tokens until a majority has accepted one, and [`voting`] counts the votes of each
//! round. [`release`] and [`heartbeat`] end and extend grants on a majority. [`nodes`] sends requests.
//! [`watch`] waits for releases. [`operating`] lists and evicts holders. [`rejoin`] delays the votes of a
//! restarted server.

pub(crate) mod builder;
mod heartbeat;
mod nodes;
mod obtain;
mod operating;
mod rejoin;
mod release;
pub(crate) mod scripts;
mod store;
mod voting;
mod watch;

use std::sync::Arc;

use crate::quorum::nodes::Nodes;

/// Keeps leases on a majority of independent servers.
///
/// No request waits for a minority of the servers, which may hang, be partitioned or have stopped. The
/// [crate's table](crate#what-happens-when) lists what happens when servers forget leases. Clones share
/// connections.
///
/// Each grant carries a fencing token that is larger than every earlier token of its key. The usual Redlock
/// libraries cannot guarantee this. A grant takes one round trip. Larger tokens on most nodes cost another
/// round trip. So does a new key while most nodes' clocks differ by more than 0.1 s.
///
/// A quorum keeps locks only. Records with attributes need [one logical server](crate::RedisStore).
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
/// use lease_redis::RedisQuorum;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if !lease_test_servers::redis::available() { return Ok(()); }
/// # let servers = lease_test_servers::redis::independent(3);
/// let urls = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
/// # let urls = servers.iter().map(|server| server.url());
/// let quorum = RedisQuorum::builder(urls)
/// #   .without_rejoin_delay() // the servers have just started
/// #   .with_timeout(lease_test_servers::redis::PATIENT)
///     .connect()
///     .await?;
/// let locker = Locker::new(quorum);
/// let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
/// println!("obtained with token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisQuorum {
    nodes: Arc<Nodes>,
}
