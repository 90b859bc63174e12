//! The tables of a fleet.

use std::net::SocketAddr;
use std::sync::Arc;

use lease_core::store::LeaseTable;
use lease_dynamodb::DynamoDbStore;
use lease_memory::MemoryStore;
use lease_redis::RedisStore;
use lease_test_servers::dynamodb::{self, Server};
use lease_test_servers::redis::{PATIENT, RedisServer};

pub(crate) struct Table {
    pub(crate) place: Place,
    _server: Option<Box<dyn Send + Sync>>,
}

/// Each worker opens its own connection, as a process does.
#[derive(Clone)]
pub(crate) enum Place {
    Memory(MemoryStore),
    DynamoDb(SocketAddr),
    Redis(String),
}

impl Table {
    pub(crate) fn memory() -> Self {
        Self { place: Place::Memory(MemoryStore::new()), _server: None }
    }

    pub(crate) async fn dynamodb() -> Self {
        let server = Server::dynoxide().await;
        let place = Place::DynamoDb(server.address());
        dynamodb(server.address()).ensure_table().await.unwrap();
        Self { place, _server: Some(Box::new(server)) }
    }

    pub(crate) fn redis() -> Self {
        let server = RedisServer::start();
        Self { place: Place::Redis(server.url()), _server: Some(Box::new(server)) }
    }
}

impl Place {
    /// The same place behind a proxy. A table in memory has no network.
    pub(crate) fn behind(&self, proxy: SocketAddr) -> Self {
        match self {
            Self::Memory(_) => self.clone(),
            Self::DynamoDb(_) => Self::DynamoDb(proxy),
            Self::Redis(_) => Self::Redis(format!("redis://{proxy}")),
        }
    }

    pub(crate) fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Memory(_) => None,
            Self::DynamoDb(address) => Some(*address),
            Self::Redis(url) => url.strip_prefix("redis://")?.parse().ok(),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn LeaseTable> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::DynamoDb(address) => Arc::new(dynamodb(*address)),
            Self::Redis(url) => {
                let store = RedisStore::builder(url.as_str()).with_timeout(PATIENT);
                Arc::new(store.connect().await.unwrap())
            }
        }
    }
}

fn dynamodb(address: SocketAddr) -> DynamoDbStore {
    let config = dynamodb::config_of(address).build();
    DynamoDbStore::new(aws_sdk_dynamodb::Client::from_conf(config), "leases")
}
