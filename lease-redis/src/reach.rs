//! How a server is reached, and what is checked before: what a store and each node of a quorum
//! have in common.

use std::fmt;
use std::time::Duration;

use deadpool_redis::{Manager, Runtime, Timeouts, cluster, sentinel};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, TlsMode,
};

use crate::connection::{Connector, sentinel_client};
use crate::diagnose::Eviction;
use crate::error::Fault;
use crate::key_space::KeySpace;
use crate::node::{Check, Limits, Node};

/// What a store and each node of a quorum have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) eviction: Eviction,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<redis::TlsCertificates>,
    #[cfg(feature = "simulation")]
    pub(crate) dialer: Option<crate::dial::Dialer>,
}

/// Who logs in to the master, where it is not who logs in to the Sentinels.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

#[cfg_attr(
    not(feature = "tls"),
    expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "without TLS there are no certificates to look at"
    )
)]
impl Common {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.prefix.contains(['{', '}']) {
            return Err(Fault::misconfigured(format!(
                "prefix {:?} has a brace in it: braces decide the slot of a Cluster",
                self.prefix
            )));
        }
        if !(Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&self.timeout) {
            return Err(Fault::misconfigured(format!(
                "time-out {:?} is out of range: 1 ms to {LONGEST_TIMEOUT:?}",
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
        #[cfg(feature = "simulation")]
        if let Some(dialer) = self.dialer.clone() {
            let limit = self.timeout.max(LEAST_TO_CONNECT);
            let line = crate::dial::Line { dialer, server: info, limit };
            return Ok((name, Connector::Dialed(Box::new(line))));
        }
        let refused = |error| Fault::from_redis(&name, &error);
        let client = Box::new(Client::open(info.clone()).map_err(refused)?);
        let pool = if let Some(pool) = pool {
            pool
        } else {
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
        };
        Ok((name, Connector::Standalone { pool, client }))
    }

    pub(crate) fn sentinel(
        &self,
        urls: &[String],
        master: &str,
        login: Option<&Login>,
        pool: Option<sentinel::Pool>,
    ) -> Result<(String, Connector), Fault> {
        let name = format!("redis master {master}");
        let refused = |error| Fault::from_redis(&name, &error);
        let first = urls.first().ok_or_else(|| {
            Fault::misconfigured("no Sentinel is named: name at least one, better three")
        })?;
        let first = self.info(first)?;
        self.refuse_certificates(&name)?;
        let mut to_master = first.redis_settings().clone();
        if let Some(login) = login {
            to_master = login.on(to_master.db());
        }
        // As the Sentinels are reached, so is the master: a password would be read on the way.
        let tls = tls_of(first.addr());
        let urls: Vec<_> = urls.iter().map(|url| without_database(url)).collect();
        let mut node = redis::sentinel::SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(to_master.clone());
        if let Some(mode) = tls {
            node = node.set_tls_mode(mode);
        }
        let client = sentinel_client(&urls, master.to_owned(), Some(node)).map_err(refused)?;
        let pool = if let Some(pool) = pool {
            pool
        } else {
            let node = sentinel::SentinelNodeConnectionInfo {
                tls_mode: tls.map(|mode| match mode {
                    TlsMode::Insecure => sentinel::TlsMode::Insecure,
                    _ => sentinel::TlsMode::Secure,
                }),
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
        };
        Ok((name, Connector::Sentinel { pool, client }))
    }

    pub(crate) fn cluster(
        &self,
        urls: &[String],
        pool: Option<cluster::Pool>,
    ) -> Result<(String, Connector), Fault> {
        let first = urls.first().ok_or_else(|| {
            Fault::misconfigured("no node of the Cluster is named: name at least one")
        })?;
        let name = format!("redis cluster at {}", self.info(first)?.addr());
        self.refuse_certificates(&name)?;
        let pool = if let Some(pool) = pool {
            pool
        } else {
            let manager = cluster::Manager::new(urls.to_vec(), false);
            let manager = manager.map_err(|error| Fault::from_redis(&name, &error))?;
            cluster::Pool::builder(manager)
                .max_size(POOL)
                .timeouts(self.pool_timeouts())
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| Fault::misconfigured(format!("{name}: {error}")))?
        };
        Ok((name, Connector::Cluster { pool, urls: urls.to_vec() }))
    }

    fn info(&self, url: &str) -> Result<ConnectionInfo, Fault> {
        // The URL may carry a password: it is not repeated.
        let refused = |error: RedisError| {
            Fault::misconfigured(format!(
                "a URL of a Redis server is not valid ({error}): it is \
                 redis://user:password@host:port/database, or rediss:// for TLS"
            ))
        };
        if cfg!(not(feature = "tls")) && url.starts_with("rediss://") {
            return Err(Fault::misconfigured(
                "this URL asks for TLS, which lease-redis was built without: add its feature `tls`",
            ));
        }
        let info = url.into_connection_info().map_err(refused)?;
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            let client = Client::build_with_tls(info, certificates.clone()).map_err(refused)?;
            return Ok(client.get_connection_info().clone());
        }
        Ok(info)
    }

    /// The pools of these have no place for certificates.
    fn refuse_certificates(&self, name: &str) -> Result<(), Fault> {
        #[cfg(feature = "tls")]
        if self.certificates.is_some() {
            return Err(Fault::misconfigured(format!(
                "{name}: certificates can be given for standalone servers alone; let the system \
                 trust them, for instance by SSL_CERT_FILE"
            )));
        }
        let _ = name;
        Ok(())
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
            #[cfg(feature = "simulation")]
            dialer: None,
        }
    }
}

impl Login {
    fn on(&self, database: i64) -> RedisConnectionInfo {
        let settings = RedisConnectionInfo::default().set_db(database);
        let settings = settings.set_password(&self.password);
        if self.user.is_empty() { settings } else { settings.set_username(&self.user) }
    }
}

impl fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

fn tls_of(address: &ConnectionAddr) -> Option<TlsMode> {
    match address {
        ConnectionAddr::TcpTls { insecure: true, .. } => Some(TlsMode::Insecure),
        ConnectionAddr::TcpTls { .. } => Some(TlsMode::Secure),
        _ => None,
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

/// Connections of a pool. One is shared by all calls; the others are for those who wait for
/// replicas.
const POOL: usize = 16;

/// A ttl is a day at most, and a time-out well below.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Connecting takes several round trips, and goes on when the call that wanted it has given up.
const LEAST_TO_CONNECT: Duration = Duration::from_secs(1);
