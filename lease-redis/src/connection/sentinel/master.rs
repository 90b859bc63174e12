//! Finds a master through its Sentinels. Queries all Sentinels at once, so a silent Sentinel causes no delay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::store::{BootClock, Clock, Moment};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, RedisConnectionInfo, RedisError, RedisResult,
    Value,
};

use crate::connection::address::with_address;
use crate::error::ServerFault;
use crate::scripts::text;

pub(crate) struct Sentinels {
    pub(crate) master: String,
    pub(crate) all: Vec<ConnectionInfo>,
    pub(crate) login: RedisConnectionInfo,
    pub(crate) config: AsyncConnectionConfig,
    pub(crate) latest: LatestEpoch,
}

pub(crate) struct SentinelMaster {
    pub(crate) client: Client,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) epoch: Epoch,
}

/// Each failover increases the epoch:
/// <https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/#configuration-epochs>
pub(crate) type Epoch = u64;

impl Sentinels {
    /// Connects to the master with the largest epoch. Waits until a majority of the Sentinels has reported a
    /// reachable master, or all have answered. For seconds after a failover, some Sentinels report the former
    /// master.
    pub(crate) async fn master(&self) -> Result<SentinelMaster, ServerFault> {
        let mut queries: FuturesUnordered<_> =
            self.all.iter().map(|sentinel| self.master_of(sentinel)).collect();
        let (mut masters, mut faults) = (Vec::new(), Vec::new());
        while let Some(found) = queries.next().await {
            match found {
                Ok(master) => masters.push(master),
                Err(fault) => faults.push(fault),
            }
            if masters.len() > self.all.len() / 2 {
                break;
            }
        }
        masters.into_iter().max_by_key(|master| master.epoch).ok_or_else(|| {
            ServerFault::of_all(&format!("no Sentinel led to the master {}", self.master), &faults)
        })
    }

    pub(crate) async fn epoch_at(&self, sentinel: &ConnectionInfo) -> RedisResult<Epoch> {
        let masters = self.masters(sentinel).await?;
        let named = masters.iter().find(|master| master.get("name") == Some(&self.master));
        let epoch = named.map_or(0, epoch_of);
        self.latest.admits(epoch);
        Ok(epoch)
    }

    async fn master_of(&self, sentinel: &ConnectionInfo) -> Result<SentinelMaster, ServerFault> {
        let name = format!("Sentinel at {}", sentinel.addr());
        let refused = |error: &RedisError| ServerFault::from_sentinel(&name, error);
        let masters = self.masters(sentinel).await.map_err(|error| refused(&error))?;
        let named = |master: &&HashMap<_, _>| master.get("name") == Some(&self.master);
        let Some(master) = masters.iter().find(named) else {
            return Err(ServerFault::misconfigured(format!(
                "{name} monitors no master {:?}: correct the master's name, or the URL",
                self.master
            )));
        };
        let flags = master.get("flags").map_or("", String::as_str);
        if !flags.contains("master") || flags.contains("_down") {
            let sentence = format!("{name} reports that the master is down: flags {flags}");
            return Err(ServerFault::unavailable(sentence));
        }
        let epoch = epoch_of(master);
        if !self.latest.admits(epoch) {
            return Err(ServerFault::unavailable(format!(
                "{name} has not yet received the last failover"
            )));
        }
        let port = master.get("port").and_then(|port| port.parse().ok());
        let (Some(host), Some(port)) = (master.get("ip"), port) else {
            return Err(ServerFault::corrupt(format!("{name} reports no address of the master")));
        };
        // Uses TLS if the Sentinel uses TLS. Otherwise, the driver would send the password in plain text.
        let info = with_address(sentinel, host, port).set_redis_settings(self.login.clone());
        let server = format!("redis master {} at {}", self.master, info.addr());
        let refused = |error: RedisError| ServerFault::from_redis(&server, &error);
        let client = Client::open(info).map_err(refused)?;
        let mut connection = self.connect(&client).await.map_err(refused)?;
        let role: Value = redis::cmd("ROLE").query_async(&mut connection).await.map_err(refused)?;
        match role {
            Value::Array(items) if items.first().and_then(text).as_deref() == Some("master") => {
                Ok(SentinelMaster { client, connection, epoch })
            }
            // The server was just demoted, or the Sentinel's information is outdated.
            _ => Err(ServerFault::unavailable(format!("{server} is currently a replica"))),
        }
    }

    async fn masters(
        &self,
        sentinel: &ConnectionInfo,
    ) -> RedisResult<Vec<HashMap<String, String>>> {
        let mut connection = self.connect(&Client::open(sentinel.clone())?).await?;
        redis::cmd("SENTINEL").arg("MASTERS").query_async(&mut connection).await
    }

    async fn connect(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        client.get_multiplexed_async_connection_with_config(&self.config).await
    }
}

#[derive(Default)]
pub(crate) struct LatestEpoch {
    clock: BootClock,
    named: Mutex<Option<(Epoch, Moment)>>,
}

impl LatestEpoch {
    /// Returns false if a later epoch than `epoch` was reported recently. Otherwise, records `epoch`.
    fn admits(&self, epoch: Epoch) -> bool {
        let now = self.clock.now();
        let mut named = self.named.lock();
        match *named {
            Some((latest, at)) if epoch < latest && now.since(at) < EPOCH_MEMORY => false,
            _ => {
                *named = Some((epoch, now));
                true
            }
        }
    }
}

/// During a failover, the leading Sentinel has already increased its epoch, but still reports the former
/// master.
fn epoch_of(master: &HashMap<String, String>) -> Epoch {
    let epoch: Epoch = master.get("config-epoch").and_then(|text| text.parse().ok()).unwrap_or(0);
    let leads = master.get("flags").is_some_and(|flags| flags.contains("failover_in_progress"));
    if leads { epoch.saturating_sub(1) } else { epoch }
}

pub(crate) struct MasterManager(pub(crate) Arc<Sentinels>);

impl Manager for MasterManager {
    type Type = SentinelMaster;
    type Error = ServerFault;

    async fn create(&self) -> Result<SentinelMaster, ServerFault> {
        self.0.master().await
    }

    async fn recycle(
        &self,
        master: &mut SentinelMaster,
        _: &Metrics,
    ) -> RecycleResult<ServerFault> {
        if !self.0.latest.admits(master.epoch) {
            return Err(RecycleError::message("the master was replaced"));
        }
        let answer: RedisResult<Value> =
            redis::cmd("PING").query_async(&mut master.connection).await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(RecycleError::Backend(ServerFault::from_redis(&self.0.master, &error)))
            }
        }
    }
}

/// Sentinels learn of a failover within about 2 s. New Sentinels start at epoch zero, so the client accepts
/// smaller epochs after this time.
const EPOCH_MEMORY: Duration = Duration::from_secs(60);
