//! Leases on a majority of independent servers.
//!
//! Start with [`RedisQuorum`] below and its lock operations in [`store`]. [`builder`] connects it. [`obtain`]
//! collects votes until a majority has granted a claim, and [`heartbeat`] extends grants on a majority.
//! [`ballot`] counts the answers of the nodes in [`nodes`]. [`admission`] and [`membership`] delay the votes
//! of a restarted server; [`contention`] remembers which keys have several contenders.

mod admission;
mod ballot;
pub(crate) mod builder;
mod contention;
mod heartbeat;
mod membership;
mod nodes;
mod obtain;
mod store;

use std::sync::Arc;

use crate::quorum::nodes::Nodes;

/// Keeps leases on a majority of independent servers.
///
/// A minority of the servers may hang, be partitioned or be gone: no request waits for them. The [crate's
/// table](crate#what-happens-when) lists what happens when servers forget leases. Clones share connections.
///
/// Each grant carries a fencing token that is larger than every earlier token of its key. The usual Redlock
/// libraries cannot guarantee that. Before a grant is returned, the largest counter in a majority is written
/// back to that majority. While the nodes' counters agree, this takes no second round trip. For a new key,
/// they agree if most nodes have been up for more than a second and their clocks are within 0.1 s of each
/// other.
///
/// A quorum keeps locks only: records with attributes need [one logical server](crate::RedisStore). It can
/// neither list its locks nor evict a holder: both return an error of the kind `Unsupported`.
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
