//! How a server is reached: by itself, through Sentinels, or as a Cluster.

use std::convert::identity;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Object, Pool, PoolError};
use deadpool_redis::{cluster, sentinel};
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, ProtocolVersion, PushInfo, RedisError,
    RedisResult, Value,
};
use tokio::sync::mpsc;
use tracing::debug;

use crate::cluster::Cluster;
use crate::error::{Fault, is_no_script};
use crate::failover::MasterWatch;
use crate::request::{Asking, Request};
use crate::sentinels::{Master, Sentinels, ToMaster};

/// Makes connections to one logical server.
pub(crate) enum Connector {
    Standalone {
        pool: deadpool_redis::Pool,
        client: Box<Client>,
    },
    Sentinel {
        pool: MasterPool,
        sentinels: Arc<Sentinels>,
    },
    Cluster(Arc<Cluster>),
    /// The application's pool: its driver looks for the nodes. Watches have connections of ours.
    ClusterPool {
        pool: cluster::Pool,
        watches: Arc<Cluster>,
    },
    /// One node of a Cluster.
    Shard {
        client: Box<Client>,
        config: Box<AsyncConnectionConfig>,
    },
    #[cfg(feature = "simulation")]
    Dialed(Box<crate::dial::Line>),
}

/// The connections to a master behind Sentinels.
pub(crate) enum MasterPool {
    Own(Pool<ToMaster>),
    /// The application's: its driver asks the Sentinels.
    Given(sentinel::Pool),
}

/// A connection that many tasks share: their commands are pipelined, and answered in order.
#[derive(Clone)]
pub(crate) enum Link {
    Direct(MultiplexedConnection),
    /// To a master that Sentinels may replace.
    Master(MultiplexedConnection, MasterWatch),
    Cluster(ClusterConnection),
    #[cfg(feature = "simulation")]
    Dialed(Arc<crate::dial::Dialed>),
}

/// A connection that hears what is published.
pub(crate) enum Subscriber {
    PubSub(PubSub),
    /// Of one node of a Cluster.
    Shard(MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>),
}

/// What a server is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Standalone,
    Sentinel,
    Cluster,
}

/// A connection that goes back to its pool when it is dropped.
pub(crate) struct Lent {
    /// How long its driver waits is changed on a copy: whoever borrows it next may be somebody else,
    /// where the pool is the application's.
    copy: MultiplexedConnection,
    _lent: Box<dyn Send>,
}

impl Lent {
    fn with<C>(lent: C, patience: Duration) -> Self
    where
        C: Deref<Target = MultiplexedConnection> + Send + 'static,
    {
        Self::of(lent.clone(), lent, patience)
    }

    fn of(mut copy: MultiplexedConnection, lent: impl Send + 'static, patience: Duration) -> Self {
        copy.set_response_timeout(patience);
        Self { copy, _lent: Box::new(lent) }
    }

    pub(crate) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.copy.req_packed_command(command).await?.extract_error()
    }
}

impl Connector {
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Standalone { .. } => Role::Standalone,
            Self::Sentinel { .. } => Role::Sentinel,
            Self::Cluster(_) | Self::ClusterPool { .. } | Self::Shard { .. } => Role::Cluster,
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
    pub(crate) async fn open(&self, server: &str, patience: Duration) -> Result<Link, Fault> {
        let refused = |error| refused(server, error);
        let mut connection = match self {
            Self::Standalone { pool, .. } => {
                deadpool_redis::Connection::take(pool.get().await.map_err(refused)?)
            }
            Self::Sentinel { pool: MasterPool::Own(pool), sentinels } => {
                let lent = pool.get().await;
                let lent = lent.map_err(|error| Fault::from_pool(server, error, identity))?;
                let Master { mut connection, epoch, .. } = Object::take(lent);
                connection.set_response_timeout(patience);
                return Ok(Link::Master(connection, MasterWatch::start(sentinels, epoch)));
            }
            Self::Sentinel { pool: MasterPool::Given(pool), .. } => {
                sentinel::Connection::take(pool.get().await.map_err(refused)?)
            }
            Self::Cluster(_) => return Err(Fault::misconfigured(NO_SINGLE_CONNECTION)),
            Self::ClusterPool { pool, .. } => {
                let lent = pool.get().await.map_err(refused)?;
                return Ok(Link::Cluster(cluster::Connection::take(lent)));
            }
            Self::Shard { client, config } => {
                let connection = client.get_multiplexed_async_connection_with_config(config).await;
                connection.map_err(|error| Fault::from_connecting(server, &error))?
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(line) => {
                let dialed = line.open(patience).await;
                let dialed = dialed.map_err(|error| Fault::from_redis(server, &error))?;
                return Ok(Link::Dialed(dialed.into()));
            }
        };
        connection.set_response_timeout(patience);
        Ok(Link::Direct(connection))
    }

    /// Lends a connection to one task alone: for `WAIT`, which blocks whoever shares it. Its
    /// driver gives a call up after `patience`.
    pub(crate) async fn lend(&self, server: &str, patience: Duration) -> Result<Lent, Fault> {
        let refused = |error| refused(server, error);
        Ok(match self {
            Self::Standalone { pool, .. } => {
                Lent::with(pool.get().await.map_err(refused)?, patience)
            }
            Self::Sentinel { pool: MasterPool::Own(pool), .. } => {
                let lent = pool.get().await;
                let lent = lent.map_err(|error| Fault::from_pool(server, error, identity))?;
                Lent::of(lent.connection.clone(), lent, patience)
            }
            Self::Sentinel { pool: MasterPool::Given(pool), .. } => {
                Lent::with(pool.get().await.map_err(refused)?, patience)
            }
            Self::Cluster(_) | Self::ClusterPool { .. } | Self::Shard { .. } => {
                return Err(Fault::misconfigured(NO_SINGLE_CONNECTION));
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(_) => return Err(Fault::misconfigured("no model has replicas")),
        })
    }

    pub(crate) async fn subscriber(&self, server: &str) -> Result<Subscriber, Fault> {
        let refused = |error: RedisError| Fault::from_redis(server, &error);
        match self {
            Self::Standalone { client, .. } => {
                Ok(Subscriber::PubSub(client.get_async_pubsub().await.map_err(refused)?))
            }
            Self::Sentinel { sentinels, .. } => {
                let master = sentinels.master().await?.client;
                Ok(Subscriber::PubSub(master.get_async_pubsub().await.map_err(refused)?))
            }
            Self::Shard { client, config } => {
                let (pushed, pushes) = mpsc::unbounded_channel();
                let info = client.get_connection_info().clone();
                let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
                let client = Client::open(info.set_redis_settings(settings)).map_err(refused)?;
                let config = AsyncConnectionConfig::clone(config).set_push_sender(pushed);
                let connection = client.get_multiplexed_async_connection_with_config(&config).await;
                Ok(Subscriber::Shard(connection.map_err(refused)?, pushes))
            }
            Self::Cluster(_) | Self::ClusterPool { .. } => {
                Err(Fault::misconfigured(NO_SINGLE_CONNECTION))
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(line) => Ok(Subscriber::PubSub(line.subscriber().await.map_err(refused)?)),
        }
    }
}

impl Link {
    /// Whether Sentinels have replaced the master at the other end.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self, Self::Master(_, watch) if watch.is_replaced())
    }

    /// One request in one round trip, unless the server has to be sent the script in full.
    pub(crate) async fn ask(&self, request: Request<'_>, asking: Asking) -> RedisResult<Value> {
        let (then, script) = (request.then(), request.script());
        let answer = match request {
            Request::Command(command) => self.send(command, then, asking).await,
            Request::Script(call) | Request::ScriptThen(call, _) => {
                self.send(call.by_hash(), then, asking).await
            }
        };
        match script {
            Some(call) if answer.as_ref().is_err_and(is_no_script) => {
                debug!(script = call.name(), "the script is sent in full");
                self.send(&call.by_text(), then, asking).await
            }
            _ => answer,
        }
    }

    /// Answers both where there are two commands: an error of the second as a value, and nil where
    /// the second has to be asked of whichever node has its key.
    async fn send(&self, first: &Cmd, then: Option<&Cmd>, asking: Asking) -> RedisResult<Value> {
        let mut commands = redis::pipe();
        match (then, asking) {
            (None, Asking::No) => return self.query(first).await,
            // A node that is taking a slot over answers for keys that it has yet to be sent as if
            // they did not exist.
            (_, Asking::Yes) => commands.cmd("ASKING").add_command(first.clone()),
            // Its driver may follow redirections of the one and not of the other.
            (Some(_), Asking::No) if matches!(self, Self::Cluster(_)) => {
                return Ok(Value::Array(vec![self.query(first).await?, Value::Nil]));
            }
            (Some(then), Asking::No) => {
                commands.add_command(first.clone()).add_command(then.clone())
            }
        };
        let mut answers = self.query_all(&commands).await?.into_iter();
        if asking == Asking::Yes {
            answers.next();
        }
        let first = answers.next().unwrap_or(Value::Nil).extract_error()?;
        Ok(match then {
            Some(_) => Value::Array(vec![first, answers.next().unwrap_or(Value::Nil)]),
            None => first,
        })
    }

    pub(crate) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        let value = match self {
            Self::Direct(connection) | Self::Master(connection, _) => {
                connection.clone().req_packed_command(command).await?
            }
            Self::Cluster(connection) => connection.clone().req_packed_command(command).await?,
            #[cfg(feature = "simulation")]
            Self::Dialed(dialed) => dialed.connection.clone().req_packed_command(command).await?,
        };
        value.extract_error()
    }

    async fn query_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = commands.len();
        match self {
            Self::Direct(connection) | Self::Master(connection, _) => {
                connection.clone().req_packed_commands(commands, 0, count).await
            }
            Self::Cluster(connection) => {
                connection.clone().req_packed_commands(commands, 0, count).await
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(dialed) => {
                dialed.connection.clone().req_packed_commands(commands, 0, count).await
            }
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.role()).finish()
    }
}

/// Why a pool of redis' own drivers lent no connection.
fn refused(server: &str, error: PoolError<RedisError>) -> Fault {
    Fault::from_pool(server, error, |error| Fault::from_connecting(server, &error))
}

const NO_SINGLE_CONNECTION: &str = "a Cluster has a connection for each node, and none for itself";
