//! The store keeps every promise of both traits, on one server.

use async_trait::async_trait;
use lease_core::conformance::Fixture;
use lease_redis::RedisStore;
use lease_tests::redis::RedisServer;
use tokio::sync::OnceCell;

/// A server of its own for each promise.
#[derive(Default)]
struct OneServer(OnceCell<RedisServer>);

#[async_trait]
impl Fixture for OneServer {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        let server = self.0.get_or_init(async || RedisServer::start()).await;
        RedisStore::connect(&server.url()).await.unwrap()
    }
}

lease_core::conformance!(OneServer::default());
lease_core::table_conformance!(OneServer::default());
