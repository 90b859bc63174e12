//! Finds a master through Sentinels: all are asked at once, so a silent one delays nobody.

use std::collections::HashMap;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
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
}

/// A server that has answered that it is the master.
pub(crate) struct Master {
    pub(crate) client: Client,
    pub(crate) connection: MultiplexedConnection,
}

impl Sentinels {
    /// Connects to the master. The first Sentinel that leads to it decides.
    pub(crate) async fn master(&self) -> Result<Master, Fault> {
        let mut asked: FuturesUnordered<_> = self.all.iter().map(|one| self.ask(one)).collect();
        let mut faults = Vec::new();
        while let Some(found) = asked.next().await {
            match found {
                Ok(master) => return Ok(master),
                Err(fault) => faults.push(fault),
            }
        }
        Err(Fault::of_all(&format!("no Sentinel led to the master {}", self.master), &faults))
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
                Ok(Master { client, connection })
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

/// Makes the connections of a pool.
pub(crate) struct ToMaster(pub(crate) std::sync::Arc<Sentinels>);

impl Manager for ToMaster {
    type Type = MultiplexedConnection;
    type Error = Fault;

    async fn create(&self) -> Result<MultiplexedConnection, Fault> {
        Ok(self.0.master().await?.connection)
    }

    async fn recycle(
        &self,
        connection: &mut MultiplexedConnection,
        _: &Metrics,
    ) -> RecycleResult<Fault> {
        let answer: RedisResult<Value> = redis::cmd("PING").query_async(connection).await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) => Err(RecycleError::Backend(Fault::from_redis(&self.0.master, &error))),
        }
    }
}
