//! Opens connections to a server: directly, through Sentinels, or to a Cluster.

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

use crate::connection::request::{Asking, Request};
use crate::connection::sentinel::failover::MasterWatch;
use crate::connection::sentinel::master::{MasterManager, SentinelMaster, Sentinels};
use crate::error::{ServerFault, breaks_connection, is_no_script};

pub(crate) enum Connector {
    Standalone {
        pool: deadpool_redis::Pool,
        client: Box<Client>,
    },
    Sentinel {
        pool: MasterPool,
        sentinels: Arc<Sentinels>,
    },
    /// Opens no connections, because each node of the Cluster has its own connector.
    Cluster,
    /// The application's pool, whose driver finds the nodes. Watches use the store's own connections.
    ClusterPool(cluster::Pool),
    Shard {
        client: Box<Client>,
        config: Box<AsyncConnectionConfig>,
    },
    #[cfg(feature = "simulation")]
    Dialed(Box<crate::connection::dial::DialTarget>),
}

pub(crate) enum MasterPool {
    Own(Pool<MasterManager>),
    /// The application's pool, whose driver queries the Sentinels.
    Given(sentinel::Pool),
}

#[derive(Clone)]
pub(crate) enum SharedConnection {
    Direct(MultiplexedConnection),
    Master(MultiplexedConnection, MasterWatch),
    Cluster(ClusterConnection),
    #[cfg(feature = "simulation")]
    Dialed(Arc<crate::connection::dial::DialedConnection>),
}

pub(crate) enum Subscriber {
    /// The watch is empty if commands do not follow the Sentinels either.
    PubSub(PubSub, Option<MasterWatch>),
    Shard(MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Standalone,
    Sentinel,
    Cluster,
}

/// A connection for one task. Dropping this value returns the connection to its pool.
pub(crate) struct DedicatedConnection {
    /// The pooled connection keeps its own limit, because the application may borrow the connection next.
    copy: MultiplexedConnection,
    _pooled: Box<dyn Send>,
}

impl DedicatedConnection {
    fn from_pool<C>(pooled: C, limit: Duration) -> Self
    where
        C: Deref<Target = MultiplexedConnection> + Send + 'static,
    {
        Self::new(pooled.clone(), pooled, limit)
    }

    fn new(mut copy: MultiplexedConnection, pooled: impl Send + 'static, limit: Duration) -> Self {
        copy.set_response_timeout(limit);
        Self { copy, _pooled: Box::new(pooled) }
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
            Self::Cluster | Self::ClusterPool(_) | Self::Shard { .. } => Role::Cluster,
            #[cfg(feature = "simulation")]
            Self::Dialed(_) => Role::Standalone,
        }
    }

    /// The connection leaves its pool permanently. A pool checks a connection with a request before each
    /// loan, which would double the time of every call.
    ///
    /// After a call that exceeds `patience`, the driver treats the connection as broken. So `patience` is far
    /// above the store's limit.
    pub(crate) async fn open(
        &self,
        server: &str,
        patience: Duration,
    ) -> Result<SharedConnection, ServerFault> {
        let refused = |error| refused(server, error);
        let mut connection = match self {
            Self::Standalone { pool, .. } => {
                deadpool_redis::Connection::take(pool.get().await.map_err(refused)?)
            }
            Self::Sentinel { pool: MasterPool::Own(pool), sentinels } => {
                let pooled = pool.get().await;
                let pooled =
                    pooled.map_err(|error| ServerFault::from_pool(server, error, identity))?;
                let SentinelMaster { mut connection, epoch, .. } = Object::take(pooled);
                connection.set_response_timeout(patience);
                return Ok(SharedConnection::Master(
                    connection,
                    MasterWatch::start(sentinels, epoch),
                ));
            }
            Self::Sentinel { pool: MasterPool::Given(pool), .. } => {
                sentinel::Connection::take(pool.get().await.map_err(refused)?)
            }
            Self::Cluster => return Err(ServerFault::misconfigured(NO_SINGLE_CONNECTION)),
            Self::ClusterPool(pool) => {
                let pooled = pool.get().await.map_err(refused)?;
                return Ok(SharedConnection::Cluster(cluster::Connection::take(pooled)));
            }
            Self::Shard { client, config } => {
                let connection = client.get_multiplexed_async_connection_with_config(config).await;
                connection.map_err(|error| ServerFault::from_connecting(server, &error))?
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(line) => {
                let dialed = line.open(patience).await;
                let dialed = dialed.map_err(|error| ServerFault::from_redis(server, &error))?;
                return Ok(SharedConnection::Dialed(dialed.into()));
            }
        };
        connection.set_response_timeout(patience);
        Ok(SharedConnection::Direct(connection))
    }

    /// Borrows a connection for one task alone, because `WAIT` blocks all commands on its connection.
    pub(crate) async fn dedicated(
        &self,
        server: &str,
        limit: Duration,
    ) -> Result<DedicatedConnection, ServerFault> {
        let refused = |error| refused(server, error);
        Ok(match self {
            Self::Standalone { pool, .. } => {
                DedicatedConnection::from_pool(pool.get().await.map_err(refused)?, limit)
            }
            Self::Sentinel { pool: MasterPool::Own(pool), .. } => {
                let pooled = pool.get().await;
                let pooled =
                    pooled.map_err(|error| ServerFault::from_pool(server, error, identity))?;
                DedicatedConnection::new(pooled.connection.clone(), pooled, limit)
            }
            Self::Sentinel { pool: MasterPool::Given(pool), .. } => {
                DedicatedConnection::from_pool(pool.get().await.map_err(refused)?, limit)
            }
            Self::Cluster | Self::ClusterPool(_) | Self::Shard { .. } => {
                return Err(ServerFault::misconfigured(NO_SINGLE_CONNECTION));
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(_) => {
                return Err(ServerFault::misconfigured("a simulated server has no replicas"));
            }
        })
    }

    pub(crate) async fn subscriber(&self, server: &str) -> Result<Subscriber, ServerFault> {
        let refused = |error: RedisError| ServerFault::from_redis(server, &error);
        match self {
            Self::Standalone { client, .. } => {
                Ok(Subscriber::PubSub(client.get_async_pubsub().await.map_err(refused)?, None))
            }
            Self::Sentinel { pool, sentinels } => {
                let SentinelMaster { client, epoch, .. } = sentinels.master().await?;
                let subscribed = client.get_async_pubsub().await.map_err(refused)?;
                // The commands of an application's pool stay on the former master until its demotion.
                let watch = match pool {
                    MasterPool::Own(_) => Some(MasterWatch::start(sentinels, epoch)),
                    MasterPool::Given(_) => None,
                };
                Ok(Subscriber::PubSub(subscribed, watch))
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
            Self::Cluster | Self::ClusterPool(_) => {
                Err(ServerFault::misconfigured(NO_SINGLE_CONNECTION))
            }
            #[cfg(feature = "simulation")]
            Self::Dialed(line) => {
                Ok(Subscriber::PubSub(line.subscriber().await.map_err(refused)?, None))
            }
        }
    }
}

impl SharedConnection {
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self, Self::Master(_, watch) if watch.is_replaced())
    }

    /// Sends one request in one round trip, or in two if the server does not know the script.
    pub(crate) async fn send(&self, request: Request<'_>, asking: Asking) -> RedisResult<Value> {
        let (then, script) = (request.then(), request.script());
        let answer = match request {
            Request::Command(command) => self.send_all(command, then, asking).await,
            Request::Script(call) | Request::ScriptThen(call, _) => {
                self.send_all(call.by_hash(), then, asking).await
            }
            Request::Pipeline(commands, _) => return self.send_pipeline(commands).await,
        };
        match script {
            Some(call) if answer.as_ref().is_err_and(is_no_script) => {
                debug!(script = call.name(), "script unknown to the server: sent in full");
                self.send_all(&call.by_text(), then, asking).await
            }
            _ => answer,
        }
    }

    /// Sends one command, or two in a pipeline. For two commands, returns an array of both answers. An error
    /// of the second command is a value in the array. Nil means that the caller must send the second command
    /// again, to the node with its key.
    async fn send_all(
        &self,
        first: &Cmd,
        then: Option<&Cmd>,
        asking: Asking,
    ) -> RedisResult<Value> {
        let mut commands = redis::pipe();
        match (then, asking) {
            (None, Asking::No) => return self.query(first).await,
            // The importing node may not have the second command's key yet.
            (_, Asking::Yes) => commands.cmd("ASKING").add_command(first.clone()),
            // The pool's driver may redirect only one of the two commands.
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

    /// An error that breaks the connection is the error of the whole request.
    async fn send_pipeline(&self, commands: &Pipeline) -> RedisResult<Value> {
        let answers = self.query_all(commands).await?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                let error = RedisError::from(error.clone());
                if breaks_connection(&error) {
                    return Err(error);
                }
            }
        }
        Ok(Value::Array(answers))
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

fn refused(server: &str, error: PoolError<RedisError>) -> ServerFault {
    ServerFault::from_pool(server, error, |error| ServerFault::from_connecting(server, &error))
}

const NO_SINGLE_CONNECTION: &str =
    "a Cluster has a connection to each node, but none to the whole Cluster";
