//! A store in one Redis, or a quorum of several.

use std::sync::Arc;

use lease_core::LockStore;
use lease_redis::{RedisQuorum, RedisStore};

use crate::Failure;

/// Opens the server at `places`, or, where it names several with commas between them, all of
/// them as a quorum.
pub(crate) async fn open(places: &str) -> Result<Arc<dyn LockStore>, Failure> {
    if !places.contains(',') {
        return Ok(Arc::new(connect(places).await?));
    }
    let urls = places.split(',').map(|place| format!("redis://{place}"));
    // These servers may have been started a moment ago, for this example. Leave it out where it
    // matters: then a server that restarts keeps from voting until all that it has forgotten has
    // run out.
    let quorum = RedisQuorum::builder(urls).without_quarantine();
    Ok(Arc::new(quorum.connect().await?))
}

/// Opens the server at `place`.
pub(crate) async fn connect(place: &str) -> Result<RedisStore, Failure> {
    Ok(RedisStore::connect(&format!("redis://{place}")).await?)
}
