//! Leases on one logical server.
//!
//! Start with [`RedisStore`] below and its lock operations in [`store`]. [`builder`] connects it, [`obtain`]
//! grants a key and writes the claim's attributes in one script, and [`table`] keeps records with
//! attributes.

pub(crate) mod builder;
mod obtain;
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
/// ```no_run
/// use lease_core::{Attempt, Locker};
/// use lease_redis::RedisStore;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
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
