//! Finds a master through Sentinels: all are asked at once, so a silent one delays nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::{BootClock, Clock, Moment};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, RedisConnectionInfo, RedisError, RedisResult,
    Value,
};

use crate::address::at;
use crate::error::Fault;
use crate::script::text;

/// The Sentinels that watch over one master.
pub(crate) struct Sentinels {
    /// What they call the master.
    pub(crate) master: String,
    pub(crate) all: Vec<ConnectionInfo>,
    /// The master's login, database and protocol.
    pub(crate) login: RedisConnectionInfo,
    /// The limits of each connection, to a Sentinel and to the master.
    pub(crate) config: AsyncConnectionConfig,
    pub(crate) latest: Latest,
}

/// A server that has answered that it is the master.
pub(crate) struct Master {
    pub(crate) client: Client,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) epoch: Epoch,
}

/// The number of a Sentinel's configuration: each failover of a master has a larger one.
pub(crate) type Epoch = u64;

impl Sentinels {
    /// Connects to the master of the largest epoch that a majority of the Sentinels, or all that
    /// answer, lead to: after a failover, some name the former master for seconds.
    pub(crate) async fn master(&self) -> Result<Master, Fault> {
        let mut asked: FuturesUnordered<_> = self.all.iter().map(|one| self.ask(one)).collect();
        let (mut masters, mut faults) = (Vec::new(), Vec::new());
        while let Some(found) = asked.next().await {
            match found {
                Ok(master) => masters.push(master),
                Err(fault) => faults.push(fault),
            }
            if masters.len() > self.all.len() / 2 {
                break;
            }
        }
        masters.into_iter().max_by_key(|master| master.epoch).ok_or_else(|| {
            Fault::of_all(&format!("no Sentinel led to the master {}", self.master), &faults)
        })
    }

    /// The epoch of the master that `sentinel` names.
    pub(crate) async fn epoch_at(&self, sentinel: &ConnectionInfo) -> RedisResult<Epoch> {
        let masters = self.masters(sentinel).await?;
        let named = masters.iter().find(|master| master.get("name") == Some(&self.master));
        let epoch = named.map_or(0, epoch_of);
        self.latest.admits(epoch);
        Ok(epoch)
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> Result<Master, Fault> {
        let name = format!("Sentinel at {}", sentinel.addr());
        let refused = |error: &RedisError| Fault::from_sentinel(&name, error);
        let masters = self.masters(sentinel).await.map_err(|error| refused(&error))?;
        let named = |master: &&HashMap<_, _>| master.get("name") == Some(&self.master);
        let Some(master) = masters.iter().find(named) else {
            return Err(Fault::misconfigured(format!(
                "{name} watches over no master {:?}: correct the master's name, or the URL",
                self.master
            )));
        };
        let flags = master.get("flags").map_or("", String::as_str);
        if !flags.contains("master") || flags.contains("_down") {
            let sentence = format!("{name} says that the master is down: flags {flags}");
            return Err(Fault::unavailable(sentence));
        }
        let epoch = epoch_of(master);
        if !self.latest.admits(epoch) {
            return Err(Fault::unavailable(format!(
                "{name} does not know of the last failover yet"
            )));
        }
        let port = master.get("port").and_then(|port| port.parse().ok());
        let (Some(host), Some(port)) = (master.get("ip"), port) else {
            return Err(Fault::corrupt(format!("{name} tells no address of the master")));
        };
        // Like the Sentinel, with TLS or without: a password would be read on the way.
        let info = at(sentinel, host, port).set_redis_settings(self.login.clone());
        let server = format!("redis master {} at {}", self.master, info.addr());
        let refused = |error: RedisError| Fault::from_redis(&server, &error);
        let client = Client::open(info).map_err(refused)?;
        let mut connection = self.connect(&client).await.map_err(refused)?;
        let role: Value = redis::cmd("ROLE").query_async(&mut connection).await.map_err(refused)?;
        match role {
            Value::Array(items) if items.first().and_then(text).as_deref() == Some("master") => {
                Ok(Master { client, connection, epoch })
            }
            // Demoted a moment ago, or this Sentinel's view is old.
            _ => Err(Fault::unavailable(format!("{server} is a replica just now"))),
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

/// The largest epoch that a Sentinel has named lately.
#[derive(Default)]
pub(crate) struct Latest {
    clock: BootClock,
    named: Mutex<Option<(Epoch, Moment)>>,
}

impl Latest {
    /// Whether a master of `epoch` is no former master, as far as is known. Remembers `epoch` if so.
    fn admits(&self, epoch: Epoch) -> bool {
        let now = self.clock.now();
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        match *named {
            Some((latest, at)) if epoch < latest && now.since(at) < REMEMBERED => false,
            _ => {
                *named = Some((epoch, now));
                true
            }
        }
    }
}

/// The epoch of the address that a Sentinel names. The one that leads a failover counts up when it has
/// promoted a replica, and names the former master until the failover ends.
fn epoch_of(master: &HashMap<String, String>) -> Epoch {
    let epoch: Epoch = master.get("config-epoch").and_then(|text| text.parse().ok()).unwrap_or(0);
    let leads = master.get("flags").is_some_and(|flags| flags.contains("failover_in_progress"));
    if leads { epoch.saturating_sub(1) } else { epoch }
}

/// Makes the connections of a pool.
pub(crate) struct ToMaster(pub(crate) Arc<Sentinels>);

impl Manager for ToMaster {
    type Type = Master;
    type Error = Fault;

    async fn create(&self) -> Result<Master, Fault> {
        self.0.master().await
    }

    async fn recycle(&self, master: &mut Master, _: &Metrics) -> RecycleResult<Fault> {
        if !self.0.latest.admits(master.epoch) {
            return Err(RecycleError::message("the master was replaced"));
        }
        let answer: RedisResult<Value> =
            redis::cmd("PING").query_async(&mut master.connection).await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) => Err(RecycleError::Backend(Fault::from_redis(&self.0.master, &error))),
        }
    }
}

/// Sentinels learn of a failover from each other within about 2 s. Sentinels that were set up anew count
/// from zero, and are believed after this time.
const REMEMBERED: Duration = Duration::from_secs(60);
