//! Leases on one logical server.
//!
//! Start with [`RedisStore`] below and its lock operations in [`store`]. [`builder`] connects it. [`obtain`]
//! grants a key: a lock with the next batch, which is one [`transaction`], and a record by a script.
//! [`requests`] calls the scripts, and [`lock_text`] reads a lock. [`table`] keeps records with attributes,
//! [`sessions`] keeps leases under a lease, and [`in_turn`] queues waiters. [`scan`] lists the held keys.
//! [`form`] prepares a server, and the records of earlier versions.

pub(crate) mod builder;
mod form;
mod in_turn;
pub(crate) mod lock_text;
mod obtain;
pub(crate) mod requests;
mod scan;
mod sessions;
mod store;
mod table;
mod transaction;

use std::sync::Arc;

use crate::connection::batch::Batches;
use crate::connection::node::Node;
use crate::single::transaction::LockWriter;

/// Keeps leases in Redis, on one logical server: standalone, behind Sentinel, or a Cluster.
///
/// Clones share connections. Each call takes one round trip, and simultaneous calls share requests. A call
/// fails after [a time-out](crate::RedisStoreBuilder::with_timeout) and can be repeated safely. The [crate's
/// table](crate#what-happens-when) lists what a server forgets when it restarts or fails over.
///
/// # Examples
///
/// ```
/// use lease_core::{Attempt, Locker};
/// use lease_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if !lease_test_servers::redis::available() { return Ok(()); }
/// # let server = lease_test_servers::redis::RedisServer::start();
/// let url = "redis://127.0.0.1:6379";
/// # let url = server.url();
/// let store = RedisStore::builder(url)
/// #   .with_timeout(lease_test_servers::redis::PATIENT)
///     .connect()
///     .await?;
/// let locker = Locker::new(store);
/// match locker.obtain(&"payroll".parse()?).await? {
///     Attempt::Obtained(lease) => {
///         println!("obtained with token {}", lease.token());
///         lease.release().await?;
///     }
///     Attempt::Held(holder) => println!("held by {}", holder.lessee),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisStore {
    node: Arc<Node>,
    batches: Arc<Batches<LockWriter>>,
    replicas: usize,
}
