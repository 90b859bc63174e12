//! How stores are set up: what has a default, and what is refused.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{cluster, sentinel};
use lease_core::StoreError;

use crate::diagnose::{Eviction, replicas};
use crate::error::Fault;
use crate::node::{Check, Node};
use crate::reach::{Common, Login};
use crate::store::RedisStore;

/// Sets up a [`RedisStore`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    reach: Reach,
    pool: Option<GivenPool>,
    login: Option<Login>,
    replicas: usize,
    common: Common,
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
        Self { reach, pool: None, login: None, replicas: 0, common: Common::default() }
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
    ///
    /// Without a pool, each node has a connection of its own, and a silent one delays no other. The
    /// connections of a pool are the driver's: while a node is silent, requests to all nodes may
    /// wait until the driver has given it up, for some seconds each time.
    pub fn with_cluster_pool(mut self, pool: cluster::Pool) -> Self {
        self.pool = Some(GivenPool::Cluster(pool));
        self
    }

    /// Logs in to the master as `user`, with `password`; an empty `user` is the server's default.
    /// Without this, as the first Sentinel's URL says. For a server behind Sentinel; a pool that
    /// is given logs in as it was told.
    pub fn with_master_login(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.login = Some(Login { user: user.into(), password: password.into() });
        self
    }

    /// Trusts what `certificates` name, instead of what the system trusts, and shows the
    /// client's own. For `rediss://` on a standalone server; Sentinels and Clusters are trusted
    /// as the system does, which `SSL_CERT_FILE` can name more for.
    #[cfg(feature = "tls")]
    pub fn with_certificates(mut self, certificates: redis::TlsCertificates) -> Self {
        self.common.certificates = Some(certificates);
        self
    }

    /// Connects over the streams that `dialer` makes, rather than over sockets: for simulations.
    #[cfg(feature = "simulation")]
    pub fn with_dialer(mut self, dialer: crate::Dialer) -> Self {
        self.common.dialer = Some(dialer);
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
        if self.replicas > 0 {
            has_replicas(&node, self.replicas).await?;
        }
        Ok(RedisStore { node, replicas: self.replicas })
    }

    fn node(&self, check: Check) -> Result<Node, Fault> {
        let common = &self.common;
        common.check()?;
        let login = self.login.as_ref();
        if login.is_some() && !matches!(self.reach, Reach::Sentinel { .. }) {
            return Err(Fault::misconfigured(
                "a master's login is for servers behind Sentinel: elsewhere it is in the URL",
            ));
        }
        let (name, connector) = match (&self.reach, &self.pool) {
            (Reach::Standalone(url), None) => common.standalone(url, None)?,
            (Reach::Standalone(url), Some(GivenPool::Standalone(pool))) => {
                common.standalone(url, Some(pool.clone()))?
            }
            (Reach::Sentinel { urls, master }, None) => {
                common.sentinel(urls, master, login, None)?
            }
            (Reach::Sentinel { urls, master }, Some(GivenPool::Sentinel(pool))) => {
                common.sentinel(urls, master, login, Some(pool.clone()))?
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

/// Refuses a server that could grant nothing. It passes when replicas come back.
async fn has_replicas(node: &Node, needed: usize) -> Result<(), Fault> {
    let mut info = redis::cmd("INFO");
    let info = node.command(info.arg("replication")).await?;
    let count = replicas(&info).unwrap_or(0);
    if count >= needed {
        return Ok(());
    }
    Err(Fault::unavailable(format!(
        "{} has {count} replicas, not {needed}: start the others, or ask for fewer by \
         `with_replicas`",
        node.name
    )))
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
