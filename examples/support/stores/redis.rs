//! Opens a store on one Redis server, or on a quorum of several.

use std::sync::Arc;

use lease_core::store::LockStore;
use lease_redis::{RedisQuorum, RedisStore};

use crate::Failure;

/// `servers` is `HOST:PORT`, or a quorum of several servers, separated by commas.
pub(crate) async fn open(servers: &str) -> Result<Arc<dyn LockStore>, Failure> {
    if !servers.contains(',') {
        return Ok(Arc::new(connect(servers).await?));
    }
    let urls = servers.split(',').map(|server| format!("redis://{server}"));
    // The servers of this example may have just started. Applications should not use
    // `without_rejoin_delay`: by default, a restarted server grants no lease until all forgotten
    // leases have expired.
    let quorum = RedisQuorum::builder(urls).without_rejoin_delay();
    Ok(Arc::new(quorum.connect().await?))
}

pub(crate) async fn connect(server: &str) -> Result<RedisStore, Failure> {
    Ok(RedisStore::connect(&format!("redis://{server}")).await?)
}
