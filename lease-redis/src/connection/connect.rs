//! How a server is reached, and what is checked before: what a store and each node of a quorum
//! have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Pool;
use deadpool_redis::{Manager, Runtime, Timeouts, cluster, sentinel};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    RedisError,
};

use crate::cluster::Cluster;
use crate::connection::{Connector, MasterPool};
use crate::diagnose::Eviction;
use crate::error::Fault;
use crate::key_space::KeySpace;
use crate::node::{Check, Limits, Node};
use crate::sentinels::{Latest, Sentinels, ToMaster};

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
            let config = self.connection_config();
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
        if urls.is_empty() {
            return Err(Fault::misconfigured(
                "no Sentinel is named: name at least one, better three",
            ));
        }
        self.refuse_certificates(&name)?;
        let infos: Result<Vec<_>, _> = urls.iter().map(|url| self.info(url)).collect();
        let infos = infos?;
        let of_first = infos.first().map(|first| first.redis_settings().clone());
        let of_first = of_first.unwrap_or_default();
        let all = infos.into_iter().map(without_database).collect();
        let login = login.map_or_else(|| of_first.clone(), |login| login.on(of_first.db()));
        let config = self.connection_config();
        let latest = Latest::default();
        let sentinels = Sentinels { master: master.to_owned(), all, login, config, latest };
        let sentinels = Arc::new(sentinels);
        let pool = if let Some(pool) = pool {
            MasterPool::Given(pool)
        } else {
            let pool = Pool::builder(ToMaster(Arc::clone(&sentinels)))
                .max_size(POOL)
                .timeouts(self.pool_timeouts())
                .runtime(Runtime::Tokio1)
                .build();
            MasterPool::Own(pool.map_err(|error| Fault::misconfigured(format!("{name}: {error}")))?)
        };
        Ok((name, Connector::Sentinel { pool, sentinels }))
    }

    pub(crate) fn cluster(
        &self,
        urls: &[String],
        pool: Option<cluster::Pool>,
    ) -> Result<(String, Connector), Fault> {
        let infos: Result<Vec<_>, _> = urls.iter().map(|url| self.info(url)).collect();
        let infos = infos?;
        let Some(first) = infos.first() else {
            let sentence = "no node of the Cluster is named: name at least one";
            return Err(Fault::misconfigured(sentence));
        };
        let name = format!("redis cluster at {}", first.addr());
        self.refuse_certificates(&name)?;
        let cluster = Arc::new(Cluster::new(name.as_str().into(), infos, self.clone()));
        Ok((
            name,
            match pool {
                Some(pool) => Connector::ClusterPool { pool, watches: cluster },
                None => Connector::Cluster(cluster),
            },
        ))
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

    pub(crate) fn connection_config(&self) -> AsyncConnectionConfig {
        let limit = Some(self.timeout.max(LEAST_TO_CONNECT));
        AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit)
    }

    fn pool_timeouts(&self) -> Timeouts {
        let limit = Some(self.timeout.max(LEAST_TO_CONNECT));
        // A connection may be the last of several, to hosts that are silent: each has its own limit.
        let create = Some(self.timeout.max(LEAST_TO_CREATE));
        Timeouts { wait: limit, create, recycle: limit }
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

/// Sentinels have no databases; the one that is named is the master's.
fn without_database(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_db(0);
    info.set_redis_settings(settings)
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

const LEAST_TO_CREATE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    #[test]
    fn sentinel_has_no_database_and_keeps_its_tls_settings() {
        let info = "rediss://user:secret@a:1/3#insecure".into_connection_info().unwrap();

        let sentinel = without_database(info);

        assert_eq!(sentinel.redis_settings().db(), 0);
        assert_eq!(sentinel.redis_settings().username(), Some("user"));
        assert!(matches!(sentinel.addr(), ConnectionAddr::TcpTls { insecure: true, .. }));
    }
}
