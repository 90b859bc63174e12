//! Sets up a `RedisStore`: its options, their defaults, and the checks before it connects.

use std::fmt;
use std::sync::Arc;

use deadpool_redis::{cluster, sentinel};
use lease_core::StoreError;

use crate::connection::batch::Batches;
use crate::connection::connect::Login;
use crate::connection::diagnose::replicas;
use crate::connection::node::{Check, Node};
use crate::connection::settings::{ConnectionSettings, connection_setters};
use crate::error::ServerFault;
use crate::single::RedisStore;
use crate::single::form::prepare;
use crate::single::transaction::LockWriter;

impl RedisStore {
    /// Connects to the server at `url`: `redis://user:password@host:port/database`, or `rediss://` for TLS
    /// (feature `tls`).
    ///
    /// # Errors
    ///
    /// If the server is unreachable, refuses the user, or has settings that would lose leases. The message
    /// says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Sets up a store on the server at `url`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Endpoint::Standalone(url.into()))
    }

    /// Sets up a store on the server that the Sentinels at `urls` report as the master named `master`.
    ///
    /// The store logs in to the master with the credentials of the first URL and uses its database. For other
    /// users, set a login by [`with_master_login`](RedisStoreBuilder::with_master_login).
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        let urls = urls.into_iter().map(Into::into).collect();
        RedisStoreBuilder::new(Endpoint::Sentinel { urls, master: master.into() })
    }

    /// Sets up a store on the Cluster of the nodes at `urls`, which need not name all nodes.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Endpoint::Cluster(urls.into_iter().map(Into::into).collect()))
    }
}

/// Sets up a [`RedisStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use lease_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lease_core::StoreError> {
/// # if !lease_test_servers::redis::available() { return Ok(()); }
/// # let server = lease_test_servers::redis::RedisServer::start();
/// let url = "redis://127.0.0.1:6379";
/// # let url = server.url();
/// let store = RedisStore::builder(url)
///     .with_prefix("billing:")
///     .with_timeout(Duration::from_secs(5)) // the server is far away
/// #   .with_timeout(lease_test_servers::redis::PATIENT)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// On the master that three Sentinels report:
///
/// ```no_run
/// use std::time::Duration;
///
/// use lease_redis::RedisStore;
///
/// # async fn connect() -> Result<RedisStore, lease_core::StoreError> {
/// let sentinels = ["redis://a:26379", "redis://b:26379", "redis://c:26379"];
/// let store = RedisStore::sentinel(sentinels, "main")
///     .with_prefix("billing:")
///     .with_timeout(Duration::from_millis(250))
///     .connect()
///     .await?;
/// # Ok(store)
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    endpoint: Endpoint,
    pool: Option<GivenPool>,
    login: Option<Login>,
    replicas: usize,
    settings: ConnectionSettings,
}

#[derive(Clone)]
enum Endpoint {
    Standalone(String),
    Sentinel { urls: Vec<String>, master: String },
    Cluster(Vec<String>),
}

#[derive(Clone)]
enum GivenPool {
    Standalone(deadpool_redis::Pool),
    Sentinel(sentinel::Pool),
    Cluster(cluster::Pool),
}

impl RedisStoreBuilder {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            pool: None,
            login: None,
            replicas: 0,
            settings: ConnectionSettings::default(),
        }
    }

    connection_setters! {
        /// Limits each call to `timeout`, from 1 ms to an hour. Defaults to 500 ms.
        ///
        /// A nearby server needs at most a tenth of the default. Choose a time-out well below a third of the
        /// ttl. Then several calls that time out fit into a heartbeat period.
    }

    /// Waits with [`WAIT`](https://redis.io/docs/latest/commands/wait/) until each grant is on `replicas`
    /// replicas. If fewer replicas have the grant, releases it. Defaults to 0.
    ///
    /// A failover is then less likely to forget a lease, but it still may. Each grant occupies one connection
    /// of the pool for up to half of the time-out. A Cluster is refused.
    pub fn with_replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Takes connections from a pool of the application, for a standalone server. Watches use a separate
    /// connection.
    pub fn with_pool(mut self, pool: deadpool_redis::Pool) -> Self {
        self.pool = Some(GivenPool::Standalone(pool));
        self
    }

    /// Takes connections from a pool of the application, for a server behind Sentinel.
    ///
    /// The pool's driver follows failovers later than the store does: about 10 s after `SENTINEL FAILOVER`.
    pub fn with_sentinel_pool(mut self, pool: sentinel::Pool) -> Self {
        self.pool = Some(GivenPool::Sentinel(pool));
        self
    }

    /// Takes connections from a pool of the application, for a Cluster.
    ///
    /// The pool's driver routes requests. While a node is silent, each request to any node may wait several
    /// seconds. Without a pool, a silent node does not delay other nodes.
    pub fn with_cluster_pool(mut self, pool: cluster::Pool) -> Self {
        self.pool = Some(GivenPool::Cluster(pool));
        self
    }

    /// Sets the login for the master behind Sentinel. Defaults to the login in the first Sentinel's URL.
    ///
    /// An empty `user` means the server's default user. A pool of the application uses its own login.
    pub fn with_master_login(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.login = Some(Login { user: user.into(), password: password.into() });
        self
    }

    /// Connects and checks the server's settings.
    ///
    /// # Errors
    ///
    /// If an option is out of range, or if the server is unreachable, refuses the user, or would lose leases.
    /// The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let check = Check { eviction: self.settings.eviction, admission: None };
        if self.replicas > 0 && matches!(self.endpoint, Endpoint::Cluster(_)) {
            return Err(ServerFault::misconfigured(
                "`with_replicas` does not work in a Cluster: WAIT would have to go to the node of the key",
            )
            .into());
        }
        let node = Arc::new(self.node(check)?);
        node.connect().await?;
        if self.replicas > 0 {
            has_replicas(&node, self.replicas).await?;
        }
        prepare(&node).await?;
        let batches = Arc::new(Batches::new(LockWriter { node: Arc::clone(&node) }));
        Ok(RedisStore { node, batches, replicas: self.replicas })
    }

    fn node(&self, check: Check) -> Result<Node, ServerFault> {
        let settings = &self.settings;
        settings.check()?;
        let login = self.login.as_ref();
        if login.is_some() && !matches!(self.endpoint, Endpoint::Sentinel { .. }) {
            return Err(ServerFault::misconfigured(
                "`with_master_login` is for servers behind Sentinel: otherwise give the login in the URL",
            ));
        }
        let (name, connector) = match (&self.endpoint, &self.pool) {
            (Endpoint::Standalone(url), None) => settings.standalone(url, None)?,
            (Endpoint::Standalone(url), Some(GivenPool::Standalone(pool))) => {
                settings.standalone(url, Some(pool.clone()))?
            }
            (Endpoint::Sentinel { urls, master }, None) => {
                settings.sentinel(urls, master, login, None)?
            }
            (Endpoint::Sentinel { urls, master }, Some(GivenPool::Sentinel(pool))) => {
                settings.sentinel(urls, master, login, Some(pool.clone()))?
            }
            (Endpoint::Cluster(urls), None) => return self.cluster_node(urls, None, check),
            (Endpoint::Cluster(urls), Some(GivenPool::Cluster(pool))) => {
                return self.cluster_node(urls, Some(pool.clone()), check);
            }
            _ => {
                return Err(ServerFault::misconfigured(
                    "the pool is of another kind than the server: use the method for this kind",
                ));
            }
        };
        Ok(settings.node(name, connector, check))
    }

    fn cluster_node(
        &self,
        urls: &[String],
        pool: Option<cluster::Pool>,
        check: Check,
    ) -> Result<Node, ServerFault> {
        let (name, connector, cluster) = self.settings.cluster(urls, pool)?;
        Ok(self.settings.node(name, connector, check).with_router(cluster))
    }
}

/// Every grant would fail with too few replicas. The error is transient.
async fn has_replicas(node: &Node, needed: usize) -> Result<(), ServerFault> {
    let mut info = redis::cmd("INFO");
    let info = node.command(info.arg("replication")).await?;
    let count = replicas(&info).unwrap_or(0);
    if count >= needed {
        return Ok(());
    }
    Err(ServerFault::unavailable(format!(
        "{} has {count} replicas, not {needed}: start the others, or require fewer by \
         `with_replicas`",
        node.name
    )))
}

impl fmt::Debug for Endpoint {
    /// Omits the URLs, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standalone(_) => f.write_str("Standalone"),
            Self::Sentinel { urls, master } => {
                f.debug_tuple("Sentinel").field(&urls.len()).field(master).finish()
            }
            Self::Cluster(urls) => f.debug_tuple("Cluster").field(&urls.len()).finish(),
        }
    }
}

impl fmt::Debug for GivenPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenPool")
    }
}
