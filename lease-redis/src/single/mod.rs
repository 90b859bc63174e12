//! Leases on one logical server.
//!
//! Start with [`RedisStore`] below and its lock operations in [`store`]. [`builder`] connects it, [`obtain`]
//! grants a key and writes the claim's attributes in one script, [`table`] keeps records with
//! attributes, and [`scan`] lists what is held.

pub(crate) mod builder;
mod obtain;
mod scan;
mod store;
mod table;

use std::sync::Arc;

use crate::connection::node::Node;

/// Keeps leases in Redis, on one logical server: standalone, behind Sentinel, or a Cluster.
///
/// Clones share connections. Each call takes one round trip. It fails after [a
/// time-out](crate::RedisStoreBuilder::with_timeout) and can be repeated safely. The [crate's
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
    replicas: usize,
}
