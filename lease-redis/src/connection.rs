//! How a server is reached: by itself, through Sentinels, or as a Cluster.

use std::fmt;
use std::ops::Deref;
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

/// A connection that goes back to its pool when it is dropped.
pub(crate) enum Lent {
    /// How long its driver waits is changed on a copy: whoever borrows it next may be somebody else,
    /// where the pool is the application's.
    Direct {
        copy: MultiplexedConnection,
        _lent: Box<dyn Send>,
    },
    Cluster(cluster::Connection),
}

impl Lent {
    fn with<C>(lent: C, patience: Duration) -> Self
    where
        C: Deref<Target = MultiplexedConnection> + Send + 'static,
    {
        let mut copy = lent.clone();
        copy.set_response_timeout(patience);
        Self::Direct { copy, _lent: Box::new(lent) }
    }

    pub(crate) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Direct { copy, .. } => copy.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        }?
        .extract_error()
    }
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

    /// Lends a connection to one task alone: for `WAIT`, which blocks whoever shares it. Its
    /// driver gives a call up after `patience`.
    pub(crate) async fn lend(&self, patience: Duration) -> Result<Lent, PoolError> {
        Ok(match self {
            Self::Standalone { pool, .. } => Lent::with(pool.get().await?, patience),
            Self::Sentinel { pool, .. } => Lent::with(pool.get().await?, patience),
            // Its driver has no limit of its own.
            Self::Cluster { pool, .. } => Lent::Cluster(pool.get().await?),
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
