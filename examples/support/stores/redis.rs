//! Opens a store on one Redis server, or on a quorum of several.

use std::sync::Arc;

use lease_core::store::LockStore;
use lease_redis::{RedisQuorum, RedisStore};

use crate::Failure;

/// Connects to the server at `HOST:PORT`, or to a quorum of several servers, separated by commas.
pub(crate) async fn open(servers: &str) -> Result<Arc<dyn LockStore>, Failure> {
    if !servers.contains(',') {
        return Ok(Arc::new(connect(servers).await?));
    }
    let urls = servers.split(',').map(|server| format!("redis://{server}"));
    // The servers of this example may have just started. Do not copy `without_rejoin_delay`: by
    // default, a restarted server grants no lease until all leases that it may have forgotten have expired.
    let quorum = RedisQuorum::builder(urls).without_rejoin_delay();
    Ok(Arc::new(quorum.connect().await?))
}

/// Connects to the server at `HOST:PORT`.
pub(crate) async fn connect(server: &str) -> Result<RedisStore, Failure> {
    Ok(RedisStore::connect(&format!("redis://{server}")).await?)
}
