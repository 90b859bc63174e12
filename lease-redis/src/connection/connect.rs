//! Turns URLs and settings into connectors.

use std::fmt;
use std::sync::Arc;

use deadpool::managed::Pool;
use deadpool_redis::{Manager, Runtime, cluster, sentinel};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError};

use crate::connection::cluster::router::Cluster;
use crate::connection::connector::{Connector, MasterPool};
use crate::connection::sentinel::master::{LatestEpoch, MasterManager, Sentinels};
use crate::connection::settings::ConnectionSettings;
use crate::error::ServerFault;

/// The login for the master, if the Sentinels have a different login.
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
        reason = "without TLS there are no certificates"
    )
)]
impl ConnectionSettings {
    pub(crate) fn standalone(
        &self,
        url: &str,
        pool: Option<deadpool_redis::Pool>,
    ) -> Result<(String, Connector), ServerFault> {
        let info = self.info(url)?;
        let name = format!("redis at {}", info.addr());
        #[cfg(feature = "simulation")]
        if let Some(dialer) = self.dialer.clone() {
            let limit = self.connect_limit();
            let target = crate::connection::dial::DialTarget { dialer, server: info, limit };
            return Ok((name, Connector::Dialed(Box::new(target))));
        }
        let refused = |error| ServerFault::from_redis(&name, &error);
        let client = Box::new(Client::open(info.clone()).map_err(refused)?);
        let pool = if let Some(pool) = pool {
            pool
        } else {
            let config = self.connection_config();
            let manager = Manager::new_with_config(info, config).map_err(refused)?;
            deadpool_redis::Pool::builder(manager)
                .max_size(POOL_SIZE)
                .timeouts(self.pool_timeouts())
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| ServerFault::misconfigured(format!("{name}: {error}")))?
        };
        Ok((name, Connector::Standalone { pool, client }))
    }

    pub(crate) fn sentinel(
        &self,
        urls: &[String],
        master: &str,
        login: Option<&Login>,
        pool: Option<sentinel::Pool>,
    ) -> Result<(String, Connector), ServerFault> {
        let name = format!("redis master {master}");
        if urls.is_empty() {
            return Err(ServerFault::misconfigured(
                "no Sentinel is given: give the URL of at least one, better of three",
            ));
        }
        self.refuse_certificates(&name)?;
        let infos: Result<Vec<_>, _> = urls.iter().map(|url| self.info(url)).collect();
        let infos = infos?;
        let of_first = infos.first().map(|first| first.redis_settings().clone());
        let of_first = of_first.unwrap_or_default();
        let all = infos.into_iter().map(without_database).collect();
        let login = login.map_or_else(|| of_first.clone(), |login| login.info(of_first.db()));
        let config = self.connection_config();
        let latest = LatestEpoch::default();
        let sentinels = Sentinels { master: master.to_owned(), all, login, config, latest };
        let sentinels = Arc::new(sentinels);
        let pool = if let Some(pool) = pool {
            MasterPool::Given(pool)
        } else {
            let pool = Pool::builder(MasterManager(Arc::clone(&sentinels)))
                .max_size(POOL_SIZE)
                .timeouts(self.pool_timeouts())
                .runtime(Runtime::Tokio1)
                .build();
            MasterPool::Own(
                pool.map_err(|error| ServerFault::misconfigured(format!("{name}: {error}")))?,
            )
        };
        Ok((name, Connector::Sentinel { pool, sentinels }))
    }

    pub(crate) fn cluster(
        &self,
        urls: &[String],
        pool: Option<cluster::Pool>,
    ) -> Result<(String, Connector, Arc<Cluster>), ServerFault> {
        let infos: Result<Vec<_>, _> = urls.iter().map(|url| self.info(url)).collect();
        let infos = infos?;
        let Some(first) = infos.first() else {
            let sentence = "no node of the Cluster is given: give the URL of at least one";
            return Err(ServerFault::misconfigured(sentence));
        };
        let name = format!("redis cluster at {}", first.addr());
        self.refuse_certificates(&name)?;
        let cluster = Arc::new(Cluster::new(name.as_str().into(), infos, self.clone()));
        let connector = pool.map_or(Connector::Cluster, Connector::ClusterPool);
        Ok((name, connector, cluster))
    }

    fn info(&self, url: &str) -> Result<ConnectionInfo, ServerFault> {
        // The message omits the URL, which may contain a password.
        let refused = |error: RedisError| {
            ServerFault::misconfigured(format!(
                "a URL is not valid ({error}): expected \
                 redis://user:password@host:port/database, or rediss:// for TLS"
            ))
        };
        if cfg!(not(feature = "tls")) && url.starts_with("rediss://") {
            return Err(ServerFault::misconfigured(
                "a URL requires TLS, but lease-redis was built without it: enable its feature `tls`",
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

    /// The pools for Sentinels and Clusters accept no certificates.
    fn refuse_certificates(&self, name: &str) -> Result<(), ServerFault> {
        #[cfg(feature = "tls")]
        if self.certificates.is_some() {
            return Err(ServerFault::misconfigured(format!(
                "{name}: only connections to standalone servers accept certificates: add these to the \
                 system's certificates, for example with SSL_CERT_FILE"
            )));
        }
        let _ = name;
        Ok(())
    }
}

impl Login {
    fn info(&self, database: i64) -> RedisConnectionInfo {
        let settings = RedisConnectionInfo::default().set_db(database);
        let settings = settings.set_password(&self.password);
        if self.user.is_empty() { settings } else { settings.set_username(&self.user) }
    }
}

impl fmt::Debug for Login {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Sentinels have no databases. The database in the URL is the master's.
fn without_database(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_db(0);
    info.set_redis_settings(settings)
}

/// Most calls share one connection. Calls that wait for replicas use the rest.
const POOL_SIZE: usize = 16;

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    #[test]
    fn sentinel_info_omits_database_and_keeps_tls() {
        let info = "rediss://user:secret@a:1/3#insecure".into_connection_info().unwrap();

        let sentinel = without_database(info);

        assert_eq!(sentinel.redis_settings().db(), 0);
        assert_eq!(sentinel.redis_settings().username(), Some("user"));
        assert!(matches!(sentinel.addr(), ConnectionAddr::TcpTls { insecure: true, .. }));
    }
}
