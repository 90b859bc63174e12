//! The servers of a run with single faults.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use lease_test_servers::redis::{RedisCluster, RedisSentinel, RedisServer, VALKEY, available};
use lease_test_servers::tools::find;

use crate::failure::Failure;
use crate::servers::hash_slots::{SLOTS, slot_of};
use crate::servers::plain::PlainConnection;
use crate::servers::server::{clock_library, not_installed};
use crate::store::{Clocks, Store};

#[derive(Debug)]
pub(crate) struct Topology {
    store: Store,
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) sentinels: Vec<RedisServer>,
    /// Each shard begins with the original master. The nodes of a quorum are one shard.
    pub(crate) shards: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Sentinel(usize),
    Server(usize),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sentinel(number) => write!(f, "Sentinel {}", number + 1),
            Self::Server(number) => write!(f, "server {}", number + 1),
        }
    }
}

impl Topology {
    /// Blocks until the servers agree on their masters.
    pub(crate) fn start(store: Store, clocks: Clocks) -> Result<Self, Failure> {
        clock_library()?;
        if !available() {
            return Err(not_installed("redis-server, with redis-sentinel and redis-cli,"));
        }
        if clocks == Clocks::Step {
            find("valkey-server", &VALKEY).ok_or_else(|| {
                not_installed("valkey-server, a Redis whose clock can be stepped,")
            })?;
        }
        // A killed server loses no write that it acknowledged.
        let sync =
            if matches!(store, Store::Redis | Store::Quorum) { "always" } else { "everysec" };
        let durable = ["--appendonly", "yes", "--appendfsync", sync];
        let server = |options: &[&str]| {
            let options = [&durable[..], options].concat();
            let stepped = (clocks == Clocks::Step).then(|| RedisServer::with_clock_and(&options));
            // `None` only if no clock steps: otherwise, the check above has found the programs.
            stepped.flatten().unwrap_or_else(|| RedisServer::with(&options))
        };
        let (servers, sentinels) = match store {
            Store::Quorum => ((0..store.servers()).map(|_| server(&[])).collect(), Vec::new()),
            Store::Sentinel => {
                let RedisSentinel { servers, sentinels, .. } = RedisSentinel::promoting(server);
                (servers, sentinels)
            }
            Store::Cluster => (RedisCluster::started_by(1, server).nodes, Vec::new()),
            _ => (vec![server(&[])], Vec::new()),
        };
        let mut shards = vec![(0..servers.len()).collect::<Vec<_>>()];
        if store == Store::Cluster {
            let masters = servers.len() / 2;
            shards = (0..masters).map(|master| vec![master]).collect();
            for (replica, server) in servers.iter().enumerate().skip(masters) {
                let master = Role::of(server).and_then(|role| role.master_port);
                let master = servers.iter().position(|server| Some(server.port()) == master);
                let shard = master.and_then(|master| shards.get_mut(master));
                shard.ok_or("a replica has no master")?.push(replica);
            }
        }
        Ok(Self { store, servers, sentinels, shards })
    }

    pub(crate) fn address(&self) -> String {
        self.address_of(usize::MAX)
    }

    pub(crate) fn first_address(&self) -> String {
        self.address_of(1)
    }

    fn address_of(&self, most: usize) -> String {
        let list = |servers: &[RedisServer]| {
            let hosts = servers.iter().take(most).map(|server| server.address().to_string());
            hosts.collect::<Vec<_>>().join(",")
        };
        match self.store {
            Store::Sentinel => {
                format!("sentinel://{}/{}", list(&self.sentinels), RedisSentinel::MASTER)
            }
            Store::Cluster => format!("cluster://{}", list(&self.servers)),
            _ => format!("redis://{}", list(&self.servers)),
        }
    }

    pub(crate) fn first(&self) -> Host {
        if self.sentinels.is_empty() { Host::Server(0) } else { Host::Sentinel(0) }
    }

    pub(crate) fn get(&mut self, host: Host) -> Result<&mut RedisServer, Failure> {
        let server = match host {
            Host::Sentinel(number) => self.sentinels.get_mut(number),
            Host::Server(number) => self.servers.get_mut(number),
        };
        server.ok_or_else(|| "there is no such host".into())
    }

    pub(crate) fn server(&self, number: usize) -> Result<&RedisServer, Failure> {
        self.servers.get(number).ok_or_else(|| "there is no such server".into())
    }

    /// The order is that of the numbers in the shard's canary.
    pub(crate) fn members(&self, shard: usize) -> Vec<usize> {
        self.shards.get(shard).cloned().unwrap_or_default()
    }

    pub(crate) fn addresses(&self, shard: usize) -> Vec<SocketAddr> {
        let members = self.members(shard);
        members.iter().filter_map(|&member| Some(self.servers.get(member)?.address())).collect()
    }

    pub(crate) fn shard_of(&self, server: usize) -> Option<usize> {
        self.shards.iter().position(|members| members.contains(&server))
    }

    pub(crate) fn slot(&self, shard: usize) -> u16 {
        u16::try_from(shard).unwrap_or(0) * self.slots_per_shard() + PROBED
    }

    fn slots_per_shard(&self) -> u16 {
        SLOTS / u16::try_from(self.shards.len()).unwrap_or(1).max(1)
    }

    pub(crate) fn shard_of_key(&self, key: &str) -> usize {
        let shards = u32::try_from(self.shards.len()).unwrap_or(1);
        // redis-cli divides the slots evenly, with rounded borders. No key of a run is near a
        // border.
        let shard = u32::from(slot_of(key)) * shards / u32::from(SLOTS);
        usize::try_from(shard).unwrap_or(0)
    }

    /// Whether all hosts agree on one master per shard, and all replicas are linked to their
    /// master.
    pub(crate) fn is_settled(&self) -> bool {
        self.store == Store::Quorum
            || (0..self.shards.len()).all(|shard| self.is_shard_settled(shard))
                && self.sentinels.iter().all(is_sentinel_settled)
    }

    fn is_shard_settled(&self, shard: usize) -> bool {
        let members = self.members(shard);
        let roles: Option<Vec<_>> = members
            .iter()
            .map(|&member| {
                self.servers.get(member).and_then(|server| Some((server, Role::of(server)?)))
            })
            .collect();
        let Some(roles) = roles else { return false };
        let masters: BTreeSet<u16> = roles
            .iter()
            .filter(|(_, role)| role.master_port.is_none())
            .map(|(server, _)| server.port())
            .collect();
        let [master] = masters.iter().copied().collect::<Vec<_>>()[..] else { return false };
        let linked =
            |role: &Role| role.master_port.is_none_or(|port| port == master && role.is_linked);
        let is_ok = |server: &RedisServer| {
            let mut plain = PlainConnection::to(server.address(), PATIENCE);
            self.store != Store::Cluster
                || plain.first("CLUSTER INFO").contains("cluster_state:ok")
                    && !plain.first("CLUSTER NODES").contains("fail")
        };
        roles.iter().all(|(server, role)| linked(role) && is_ok(server))
            && self.sentinels.iter().all(|sentinel| named_by(sentinel) == Some(master))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) master_port: Option<u16>,
    is_linked: bool,
}

impl Role {
    pub(crate) fn of(server: &RedisServer) -> Option<Self> {
        let answer = PlainConnection::to(server.address(), PATIENCE).ask("ROLE").ok()?;
        match answer.first().map(String::as_str) {
            Some("master") => Some(Self { master_port: None, is_linked: true }),
            Some("slave") => Some(Self {
                master_port: Some(answer.get(2)?.parse().ok()?),
                is_linked: answer.get(3)? == "connected",
            }),
            _ => None,
        }
    }
}

fn named_by(sentinel: &RedisServer) -> Option<u16> {
    let mut plain = PlainConnection::to(sentinel.address(), PATIENCE);
    let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", RedisSentinel::MASTER);
    plain.ask(&command).ok()?.get(1)?.parse().ok()
}

fn is_sentinel_settled(sentinel: &RedisServer) -> bool {
    let mut plain = PlainConnection::to(sentinel.address(), PATIENCE);
    let quorum = plain.first(&format!("SENTINEL CKQUORUM {}", RedisSentinel::MASTER));
    quorum.starts_with("OK 3 usable") && plain.first("INFO sentinel").contains("status=ok,")
}

const PATIENCE: Duration = Duration::from_secs(2);

/// The distance of the probes' slot from the first slot of their shard.
const PROBED: u16 = 1000;
