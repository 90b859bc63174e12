//! How a server is reached: by itself, through Sentinels, or as a Cluster.

use std::fmt;
use std::time::Duration;

use deadpool_redis::{PoolError, cluster, sentinel};
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelServerType};
use redis::{Client, Cmd, ProtocolVersion, PushInfo, RedisError, RedisResult, Value};
use tokio::sync::{Mutex, mpsc};

/// Makes connections to one logical server.
pub(crate) enum Connector {
    Standalone {
        pool: deadpool_redis::Pool,
        client: Box<Client>,
    },
    Sentinel {
        pool: sentinel::Pool,
        client: Box<Mutex<SentinelClient>>,
    },
    Cluster {
        pool: cluster::Pool,
        urls: Vec<String>,
    },
    #[cfg(feature = "simulation")]
    Dialed(Box<crate::dial::Line>),
}

/// A connection that many tasks share: their commands are pipelined, and answered in order.
#[derive(Clone)]
pub(crate) enum Link {
    Direct(MultiplexedConnection),
    Cluster(ClusterConnection),
    #[cfg(feature = "simulation")]
    Dialed(std::sync::Arc<crate::dial::Dialed>),
}

/// A connection that hears what is published.
pub(crate) enum Subscriber {
    PubSub(PubSub),
    Cluster(ClusterConnection, mpsc::UnboundedReceiver<PushInfo>),
}

/// What a server is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Standalone,
    Sentinel,
    Cluster,
}

impl Connector {
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Standalone { .. } => Role::Standalone,
            Self::Sentinel { .. } => Role::Sentinel,
            Self::Cluster { .. } => Role::Cluster,
            #[cfg(feature = "simulation")]
            Self::Dialed(_) => Role::Standalone,
        }
    }

    /// Opens a connection, and takes it from its pool: the pool makes connections, and as many
    /// tasks as there are share this one. A pool that lends them one by one asks the server
    /// whether each still lives, which would double the time of every call.
    ///
    /// The driver gives a call up after `patience`: long after we do, since it takes that for a
    /// broken connection.
    pub(crate) async fn open(&self, patience: Duration) -> Result<Link, PoolError> {
        Ok(match self {
            Self::Standalone { pool, .. } => {
                let mut connection = deadpool_redis::Connection::take(pool.get().await?);
                connection.set_response_timeout(patience);
                Link::Direct(connection)
            }
            Self::Sentinel { pool, .. } => {
                let mut connection = sentinel::Connection::take(pool.get().await?);
                connection.set_response_timeout(patience);
                Link::Direct(connection)
            }
            Self::Cluster { pool, .. } => {
                Link::Cluster(cluster::Connection::take(pool.get().await?))
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(line) => Link::Dialed(line.open(patience).await?.into()),
        })
    }

    /// Lends a connection to one task alone: for `WAIT`, which blocks whoever shares it.
    pub(crate) async fn lend(&self) -> Result<Box<dyn ConnectionLike + Send>, PoolError> {
        Ok(match self {
            Self::Standalone { pool, .. } => Box::new(pool.get().await?),
            Self::Sentinel { pool, .. } => Box::new(pool.get().await?),
            Self::Cluster { pool, .. } => Box::new(pool.get().await?),
            #[cfg(feature = "simulation")]
            Self::Dialed(_) => return Err(PoolError::Closed), // no model has replicas
        })
    }

    pub(crate) async fn subscriber(&self) -> RedisResult<Subscriber> {
        match self {
            Self::Standalone { client, .. } => {
                Ok(Subscriber::PubSub(client.get_async_pubsub().await?))
            }
            Self::Sentinel { client, .. } => {
                let master = client.lock().await.async_get_client().await?;
                Ok(Subscriber::PubSub(master.get_async_pubsub().await?))
            }
            Self::Cluster { urls, .. } => {
                let (pushed, pushes) = mpsc::unbounded_channel();
                let client = ClusterClientBuilder::new(urls.iter().map(String::as_str))
                    .use_protocol(ProtocolVersion::RESP3)
                    .push_sender(pushed)
                    .build()?;
                Ok(Subscriber::Cluster(client.get_async_connection().await?, pushes))
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(line) => Ok(Subscriber::PubSub(line.subscriber().await?)),
        }
    }
}

impl Link {
    pub(crate) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        let value = match self {
            Self::Direct(connection) => connection.clone().req_packed_command(command).await?,
            Self::Cluster(connection) => connection.clone().req_packed_command(command).await?,
            #[cfg(feature = "simulation")]
            Self::Dialed(dialed) => dialed.connection.clone().req_packed_command(command).await?,
        };
        value.extract_error()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.role()).finish()
    }
}

/// Sentinel's client for subscribers: deadpool keeps its own to itself.
pub(crate) fn sentinel_client(
    urls: &[String],
    master: String,
    node: Option<redis::sentinel::SentinelNodeConnectionInfo>,
) -> Result<Box<Mutex<SentinelClient>>, RedisError> {
    let urls = urls.to_vec();
    let client = SentinelClient::build(urls, master, node, SentinelServerType::Master)?;
    Ok(Box::new(Mutex::new(client)))
}
