//! How stores are set up: what has a default, and what is refused.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{Manager, Runtime, Timeouts, cluster, sentinel};
use lease_core::StoreError;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::connection::{Connector, sentinel_client};
use crate::diagnose::Eviction;
use crate::error::Fault;
use crate::key_space::KeySpace;
use crate::node::{Check, Limits, Node};
use crate::store::RedisStore;

/// Sets up a [`RedisStore`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    reach: Reach,
    pool: Option<GivenPool>,
    replicas: usize,
    pub(crate) common: Common,
}

/// What a store and each node of a quorum have in common.
#[derive(Clone)]
pub(crate) struct Common {
    prefix: String,
    pub(crate) timeout: Duration,
    retention: Duration,
    eviction: Eviction,
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
}

#[derive(Clone)]
enum Reach {
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
    pub(crate) fn standalone(url: String) -> Self {
        Self::new(Reach::Standalone(url))
    }

    pub(crate) fn sentinel(urls: Vec<String>, master: String) -> Self {
        Self::new(Reach::Sentinel { urls, master })
    }

    pub(crate) fn cluster(urls: Vec<String>) -> Self {
        Self::new(Reach::Cluster(urls))
    }

    fn new(reach: Reach) -> Self {
        Self { reach, pool: None, replicas: 0, common: Common::default() }
    }

    /// Names every key `prefix{key}…`. By default `lease:`.
    ///
    /// Stores with different prefixes have nothing to do with each other. Braces are refused:
    /// they decide which slot of a Cluster a key is in.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.common.prefix = prefix.into();
        self
    }

    /// Gives each call up after `timeout`. By default 500 ms: a slow answer is one in ten times
    /// that fast, and several calls still fit into the heartbeat period of the shortest usual
    /// ttls. Keep it well below a third of the ttl.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.common.timeout = timeout;
        self
    }

    /// Remembers a key's last token, and the nonce of its last release, for `retention` after
    /// its last use. By default 7 days.
    ///
    /// A key that is used again later than that starts from the server's time, in microseconds
    /// since 1970: still above its last token, unless the clock was set back by as much.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.common.retention = retention;
        self
    }

    /// Grants only what `replicas` replicas have, too (`WAIT`). By default 0.
    ///
    /// That narrows the window in which a failover forgets a lease; it does not close it. Each
    /// grant then takes a connection of the pool for itself, and waits for up to half of the
    /// time-out.
    pub fn with_replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Accepts a server whose `maxmemory-policy` may drop leases that are held.
    ///
    /// Only for a server whose memory is known never to run out.
    pub fn with_eviction_accepted(mut self) -> Self {
        self.common.eviction = Eviction::Accepted;
        self
    }

    /// Takes connections from `pool`, which the application shares; watches have one of their
    /// own. For a standalone server.
    pub fn with_pool(mut self, pool: deadpool_redis::Pool) -> Self {
        self.pool = Some(GivenPool::Standalone(pool));
        self
    }

    /// Takes connections from `pool`, for a server behind Sentinel.
    pub fn with_sentinel_pool(mut self, pool: sentinel::Pool) -> Self {
        self.pool = Some(GivenPool::Sentinel(pool));
        self
    }

    /// Takes connections from `pool`, for a Cluster.
    pub fn with_cluster_pool(mut self, pool: cluster::Pool) -> Self {
        self.pool = Some(GivenPool::Cluster(pool));
        self
    }

    /// Trusts what `certificates` name, instead of what the system trusts, and shows the
    /// client's own. For `rediss://` on a standalone server.
    #[cfg(feature = "tls")]
    pub fn with_certificates(mut self, certificates: redis::TlsCertificates) -> Self {
        self.common.certificates = Some(certificates);
        self
    }

    /// Connects, and looks at how the server is set up.
    ///
    /// # Errors
    ///
    /// Where a value is out of range, the server is not there, refuses the user, or would lose
    /// leases; the text says what to do.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let check = Check { eviction: self.common.eviction, admit: Box::new(|_| Ok(())) };
        if self.replicas > 0 && matches!(self.reach, Reach::Cluster(_)) {
            return Err(Fault::misconfigured(
                "replicas cannot be waited for in a Cluster: WAIT would have to follow the key",
            )
            .into());
        }
        let node = Arc::new(self.node(check)?);
        node.connect().await?;
        Ok(RedisStore { node, replicas: self.replicas })
    }

    fn node(&self, check: Check) -> Result<Node, Fault> {
        let common = &self.common;
        common.check()?;
        let (name, connector) = match (&self.reach, &self.pool) {
            (Reach::Standalone(url), None) => common.standalone(url, None)?,
            (Reach::Standalone(url), Some(GivenPool::Standalone(pool))) => {
                common.standalone(url, Some(pool.clone()))?
            }
            (Reach::Sentinel { urls, master }, None) => common.sentinel(urls, master, None)?,
            (Reach::Sentinel { urls, master }, Some(GivenPool::Sentinel(pool))) => {
                common.sentinel(urls, master, Some(pool.clone()))?
            }
            (Reach::Cluster(urls), None) => common.cluster(urls, None)?,
            (Reach::Cluster(urls), Some(GivenPool::Cluster(pool))) => {
                common.cluster(urls, Some(pool.clone()))?
            }
            _ => {
                return Err(Fault::misconfigured(
                    "the pool is of another kind than the server: use the method for its kind",
                ));
            }
        };
        Ok(common.node(name, connector, check))
    }
}

impl Common {
    pub(crate) fn with_prefix(&mut self, prefix: String) {
        self.prefix = prefix;
    }

    pub(crate) fn with_retention(&mut self, retention: Duration) {
        self.retention = retention;
    }

    pub(crate) fn accept_eviction(&mut self) {
        self.eviction = Eviction::Accepted;
    }

    #[cfg(feature = "tls")]
    pub(crate) fn with_certificates(&mut self, certificates: redis::TlsCertificates) {
        self.certificates = Some(certificates);
    }

    pub(crate) fn eviction(&self) -> Eviction {
        self.eviction
    }

    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.prefix.contains(['{', '}']) {
            return Err(Fault::misconfigured(format!(
                "prefix {:?} has a brace in it: braces decide the slot of a Cluster",
                self.prefix
            )));
        }
        if self.timeout < Duration::from_millis(1) {
            return Err(Fault::misconfigured(format!(
                "time-out {:?} is too short: it is 1 ms at least",
                self.timeout
            )));
        }
        if self.retention < Duration::from_secs(60) {
            return Err(Fault::misconfigured(format!(
                "retention {:?} is too short: it is a minute at least, and longer than any ttl",
                self.retention
            )));
        }
        Ok(())
    }

    pub(crate) fn node(&self, name: String, connector: Connector, check: Check) -> Node {
        let keys = KeySpace::new(self.prefix.as_str());
        let limits = Limits { timeout: self.timeout, retention: self.retention };
        Node::new(name.into(), connector, keys, limits, check)
    }

    pub(crate) fn standalone(
        &self,
        url: &str,
        pool: Option<deadpool_redis::Pool>,
    ) -> Result<(String, Connector), Fault> {
        let info = self.info(url)?;
        let name = format!("redis at {}", info.addr());
        let refused = |error| Fault::from_redis(&name, &error);
        let client = Client::open(info.clone()).map_err(refused)?;
        let pool = match pool {
            Some(pool) => pool,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.timeout.max(LEAST_TO_CONNECT)))
                    .set_response_timeout(Some(self.timeout.max(LEAST_TO_CONNECT)));
                let manager = Manager::new_with_config(info, config).map_err(refused)?;
                deadpool_redis::Pool::builder(manager)
                    .max_size(POOL)
                    .timeouts(self.pool_timeouts())
                    .runtime(Runtime::Tokio1)
                    .build()
                    .map_err(|error| Fault::misconfigured(format!("{name}: {error}")))?
            }
        };
        Ok((name, Connector::Standalone { pool, client }))
    }

    fn sentinel(
        &self,
        urls: &[String],
        master: &str,
        pool: Option<sentinel::Pool>,
    ) -> Result<(String, Connector), Fault> {
        let name = format!("redis master {master}");
        let refused = |error| Fault::from_redis(&name, &error);
        let first = urls.first().ok_or_else(|| {
            Fault::misconfigured("no Sentinel is named: name at least one, better three")
        })?;
        let first = self.info(first)?;
        let to_master = first.redis_settings().clone();
        let urls: Vec<_> = urls.iter().map(|url| without_database(url)).collect();
        let node = redis::sentinel::SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(to_master.clone());
        let client = sentinel_client(&urls, master, Some(node)).map_err(refused)?;
        let pool = match pool {
            Some(pool) => pool,
            None => {
                let node = sentinel::SentinelNodeConnectionInfo {
                    tls_mode: None,
                    redis_connection_info: Some(deadpool_redis::RedisConnectionInfo {
                        db: to_master.db(),
                        username: to_master.username().map(str::to_owned),
                        password: to_master.password().map(str::to_owned),
                        protocol: deadpool_redis::ProtocolVersion::RESP2,
                    }),
                };
                let kind = sentinel::SentinelServerType::Master;
                let manager = sentinel::Manager::new(urls, master.to_owned(), Some(node), kind);
                sentinel::Pool::builder(manager.map_err(refused)?)
                    .max_size(POOL)
                    .timeouts(self.pool_timeouts())
                    .runtime(Runtime::Tokio1)
                    .build()
                    .map_err(|error| Fault::misconfigured(format!("{name}: {error}")))?
            }
        };
        Ok((name, Connector::Sentinel { pool, client }))
    }

    fn cluster(
        &self,
        urls: &[String],
        pool: Option<cluster::Pool>,
    ) -> Result<(String, Connector), Fault> {
        let first = urls.first().ok_or_else(|| {
            Fault::misconfigured("no node of the Cluster is named: name at least one")
        })?;
        let name = format!("redis cluster at {}", self.info(first)?.addr());
        let pool = match pool {
            Some(pool) => pool,
            None => {
                let manager = cluster::Manager::new(urls.to_vec(), false);
                let manager = manager.map_err(|error| Fault::from_redis(&name, &error))?;
                cluster::Pool::builder(manager)
                    .max_size(POOL)
                    .timeouts(self.pool_timeouts())
                    .runtime(Runtime::Tokio1)
                    .build()
                    .map_err(|error| Fault::misconfigured(format!("{name}: {error}")))?
            }
        };
        Ok((name, Connector::Cluster { pool, urls: urls.to_vec() }))
    }

    fn info(&self, url: &str) -> Result<ConnectionInfo, Fault> {
        // The URL may carry a password: it is not repeated.
        let refused = |error: RedisError| {
            Fault::misconfigured(format!("a URL of a redis server is not valid: {error}"))
        };
        let info = url.into_connection_info().map_err(refused)?;
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            let client = Client::build_with_tls(info, certificates.clone()).map_err(refused)?;
            return Ok(client.get_connection_info().clone());
        }
        if !info.addr().is_supported() {
            return Err(Fault::misconfigured(
                "this URL asks for TLS, which lease-redis was built without: add its feature `tls`",
            ));
        }
        Ok(info)
    }

    fn pool_timeouts(&self) -> Timeouts {
        let limit = Some(self.timeout.max(LEAST_TO_CONNECT));
        Timeouts { wait: limit, create: limit, recycle: limit }
    }
}

impl Default for Common {
    fn default() -> Self {
        Self {
            prefix: "lease:".to_owned(),
            timeout: Duration::from_millis(500),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            eviction: Eviction::Refused,
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }
}

/// Sentinels have no databases; the one that is named is the master's.
fn without_database(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    format!("{scheme}://{authority}")
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("retention", &self.retention)
            .field("eviction", &self.eviction)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reach {
    /// Without the URLs: they may carry passwords.
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

/// Connections of a pool. One is shared by all calls; the others are for those who wait for
/// replicas.
const POOL: usize = 16;

/// Connecting takes several round trips, and goes on when the call that wanted it has given up.
const LEAST_TO_CONNECT: Duration = Duration::from_secs(1);
