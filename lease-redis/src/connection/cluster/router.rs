//! A Cluster: routes requests to its masters and follows slots that move.
//!
//! Each master has its own connection, so a silent master delays no other.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use lease_core::store::{BootClock, Clock, Moment};
use parking_lot::{Mutex, RwLock};
use redis::cluster_routing::Slot;
use redis::{Client, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::connection::address::{Address, with_address};
use crate::connection::cluster::topology::{SlotRange, read_slots};
use crate::connection::connector::Connector;
use crate::connection::node::{Check, Node, Permit, Router};
use crate::connection::request::{Asking, Request};
use crate::connection::settings::ConnectionSettings;
use crate::connection::watches::Watch;
use crate::error::ServerFault;

pub(crate) struct Cluster {
    name: Arc<str>,
    seeds: Vec<ConnectionInfo>,
    settings: ConnectionSettings,
    masters: RwLock<SlotMap>,
    refreshing: Arc<tokio::sync::Mutex<()>>,
    refreshed: Mutex<Option<Moment>>,
    /// Rotates the candidates, so that each refresh queries another node first.
    turn: AtomicUsize,
    clock: BootClock,
}

#[derive(Default)]
struct SlotMap {
    all: HashMap<Address, Arc<ClusterMaster>>,
    by_slot: HashMap<Slot, Arc<ClusterMaster>>,
}

struct ClusterMaster {
    address: Address,
    node: Arc<Node>,
}

#[async_trait]
impl Router for Cluster {
    /// Succeeds if at least one master answers, because the other masters may be silent.
    async fn connect(self: Arc<Self>, limit: Duration) -> Result<(), ServerFault> {
        let refresh = timeout(limit, self.refresh(None)).await;
        refresh.unwrap_or_else(|_elapsed| Err(ServerFault::late(&self.name, limit)))?;
        let masters: Vec<_> = self.read(|masters| masters.all.values().cloned().collect());
        let connecting = masters.iter().map(|master| master.node.connect());
        let mut connecting: FuturesUnordered<_> = connecting.collect();
        let (mut connected, mut faults) = (0, Vec::new());
        while let Some(result) = connecting.next().await {
            match result {
                Ok(()) => connected += 1,
                Err(fault) if fault.is_transient() => faults.push(fault),
                Err(fault) => return Err(fault),
            }
        }
        if connected == 0 {
            return Err(ServerFault::of_all(
                &format!("{}: no master answered", self.name),
                &faults,
            ));
        }
        Ok(())
    }

    async fn send(
        self: Arc<Self>,
        request: Request<'_>,
        permit: Permit,
    ) -> Result<Value, ServerFault> {
        let (limit, started) = (self.settings.timeout, self.clock.now());
        let slot = Slot::for_key(request.key());
        let mut importing = None;
        let mut left = limit;
        let mut refusals = 0;
        let mut last_refusal = None;
        loop {
            let (master, asking) = match importing.take() {
                Some(master) => (master, Asking::Yes),
                None => (self.master_of(slot, left).await?, Asking::No),
            };
            let error = match master.node.attempt(request, asking, permit, left).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(fault) => {
                    // The node is silent, unreachable, or was demoted. Another node may serve its slots.
                    self.refresh_later(Some(&master.address));
                    // The last attempt had little time, so the earlier refusal explains more.
                    return Err(last_refusal.unwrap_or(fault));
                }
            };
            let fault = ServerFault::from_node_of_cluster(&master.node.name, &error);
            match self.redirection(slot, &master, &error) {
                Redirection::Owner => (),
                Redirection::Importing(other) => importing = Some(other),
                Redirection::None => return Err(fault),
            }
            refusals += 1;
            if refusals > REDIRECTIONS {
                sleep(PAUSE).await;
            }
            left = limit.saturating_sub(self.clock.now().since(started));
            if left.is_zero() {
                return Err(fault);
            }
            last_refusal = Some(fault);
        }
    }

    async fn watch(self: Arc<Self>, channel: String) -> Result<Watch, ServerFault> {
        let slot = Slot::for_key(&channel);
        let master = self.master_of(slot, self.settings.timeout).await?;
        let watch = master.node.watches.watch(channel).await;
        if watch.is_err() {
            self.refresh_later(Some(&master.address));
        }
        watch
    }

    async fn masters(self: Arc<Self>) -> Result<Vec<Arc<Node>>, ServerFault> {
        let known = || {
            self.read(|masters| {
                masters.all.values().map(|master| Arc::clone(&master.node)).collect::<Vec<_>>()
            })
        };
        if known().is_empty() {
            let limit = self.settings.timeout;
            let refresh = timeout(limit, self.refresh(None)).await;
            refresh.unwrap_or_else(|_elapsed| Err(ServerFault::late(&self.name, limit)))?;
        }
        Ok(known())
    }
}

impl Cluster {
    pub(crate) fn new(
        name: Arc<str>,
        seeds: Vec<ConnectionInfo>,
        settings: ConnectionSettings,
    ) -> Self {
        Self {
            name,
            seeds,
            settings,
            masters: RwLock::default(),
            refreshing: Arc::default(),
            refreshed: Mutex::default(),
            turn: AtomicUsize::new(0),
            clock: BootClock::new(),
        }
    }

    fn redirection(
        self: &Arc<Self>,
        slot: Slot,
        master: &Arc<ClusterMaster>,
        error: &RedisError,
    ) -> Redirection {
        let redirected = || {
            let (address, _) = error.redirect_node()?;
            self.master_at(Address::parse(address, &master.address)?)
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => match redirected() {
                Some(other) => Redirection::Importing(other),
                None => Redirection::None,
            },
            ErrorKind::Server(ServerErrorKind::Moved) => {
                if let Some(other) = redirected() {
                    self.write(|masters| masters.by_slot.insert(slot, other));
                }
                self.refresh_later(None);
                Redirection::Owner
            }
            // The keys of the request are on two nodes while their slot moves.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Redirection::Owner,
            // A master does not learn of a failover while it loads its data, but other nodes do.
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => {
                self.refresh_later(Some(&master.address));
                Redirection::Owner
            }
            _ => {
                if error.is_connection_dropped() {
                    self.refresh_later(Some(&master.address));
                }
                Redirection::None
            }
        }
    }

    async fn master_of(
        self: &Arc<Self>,
        slot: Slot,
        limit: Duration,
    ) -> Result<Arc<ClusterMaster>, ServerFault> {
        let known = || self.read(|masters| masters.by_slot.get(&slot).cloned());
        if let Some(master) = known() {
            return Ok(master);
        }
        let refresh = timeout(limit, self.refresh(None)).await;
        refresh.unwrap_or_else(|_elapsed| Err(ServerFault::late(&self.name, limit)))?;
        known().ok_or_else(|| {
            ServerFault::unavailable(format!("{}: no master serves the slot {slot:?}", self.name))
        })
    }

    /// Queries the nodes for the master of each slot. The node at `doubtful` comes last, because a partition
    /// may hide from this node that it was replaced.
    async fn refresh(&self, doubtful: Option<&Address>) -> Result<(), ServerFault> {
        let before = self.clock.now();
        let _refreshing = self.refreshing.lock().await;
        if self.refreshed().is_some_and(|at| at > before) {
            return Ok(()); // Another task has refreshed the slots in the meantime.
        }
        let candidates = self.candidates(doubtful).into_iter();
        let queries: Vec<_> = candidates.map(|candidate| self.query_slots(candidate)).collect();
        let mut answers = stream::iter(queries).buffer_unordered(QUERIES_AT_ONCE);
        let mut faults = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(ranges) => {
                    self.apply(&ranges);
                    return Ok(());
                }
                Err(fault) => faults.push(fault),
            }
        }
        Err(ServerFault::of_all(&format!("{}: no node answered", self.name), &faults))
    }

    fn refresh_later(self: &Arc<Self>, doubtful: Option<&Address>) {
        let now = self.clock.now();
        let is_recent = self.refreshed().is_some_and(|at| now.since(at) < MIN_REFRESH_INTERVAL);
        if is_recent || self.refreshing.try_lock().is_err() {
            return;
        }
        let (cluster, doubtful) = (Arc::clone(self), doubtful.cloned());
        tokio::spawn(async move {
            if let Err(fault) = cluster.refresh(doubtful.as_ref()).await {
                let error: &dyn Error = &fault;
                debug!(cluster = %cluster.name, error, "slots not refreshed");
            }
        });
    }

    fn candidates(&self, doubtful: Option<&Address>) -> Vec<ConnectionInfo> {
        let mut addresses: Vec<_> = self.seeds.iter().filter_map(Address::of).collect();
        self.read(|masters| {
            let others = masters.all.keys().filter(|address| !addresses.contains(address));
            let others: Vec<_> = others.cloned().collect();
            addresses.extend(others);
        });
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = addresses.len().max(1);
        addresses.rotate_left(turn % count);
        addresses.sort_by_key(|address| Some(address) == doubtful);
        addresses.iter().filter_map(|address| self.info(address)).collect()
    }

    async fn query_slots(&self, candidate: ConnectionInfo) -> Result<Vec<SlotRange>, ServerFault> {
        let name = format!("redis cluster node at {}", candidate.addr());
        let refused = |error: RedisError| ServerFault::from_redis(&name, &error);
        let client = Client::open(candidate.clone()).map_err(refused)?;
        let config = self.settings.connection_config();
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(refused)?;
        let slots = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let slots: Value = slots.query_async(&mut connection).await.map_err(refused)?;
        let address = Address::of(&candidate);
        let ranges = address.and_then(|address| read_slots(&slots, &address));
        let ranges = ranges.ok_or_else(|| {
            ServerFault::corrupt(format!("{name} sent an unexpected answer to CLUSTER SLOTS"))
        })?;
        if ranges.is_empty() {
            return Err(ServerFault::unavailable(format!("{name} reports no slots")));
        }
        Ok(ranges)
    }

    fn apply(&self, ranges: &[SlotRange]) {
        self.write(|masters| {
            let (mut all, mut by_slot) = (HashMap::new(), HashMap::new());
            for range in ranges {
                let known = all.get(&range.master).or_else(|| masters.all.get(&range.master));
                let Some(master) = known.cloned().or_else(|| self.make(&range.master)) else {
                    continue;
                };
                all.insert(range.master.clone(), Arc::clone(&master));
                let slots = range.slots.clone().filter_map(Slot::new);
                by_slot.extend(slots.map(|slot| (slot, Arc::clone(&master))));
            }
            *masters = SlotMap { all, by_slot };
        });
        let now = self.clock.now();
        *self.refreshed.lock() = Some(now);
    }
}

impl Cluster {
    fn master_at(&self, address: Address) -> Option<Arc<ClusterMaster>> {
        if let Some(known) = self.read(|masters| masters.all.get(&address).cloned()) {
            return Some(known);
        }
        let master = self.make(&address)?;
        self.write(|masters| {
            let entry = masters.all.entry(address).or_insert(master);
            Some(Arc::clone(entry))
        })
    }

    fn make(&self, address: &Address) -> Option<Arc<ClusterMaster>> {
        let info = self.info(address)?;
        let config = self.settings.connection_config();
        let client = Client::open(info).ok()?;
        let connector = Connector::Shard { client: Box::new(client), config: Box::new(config) };
        let check = Check { eviction: self.settings.eviction, admission: None };
        let name = format!("redis cluster node at {address}");
        let node = self.settings.node(name, connector, check);
        Some(Arc::new(ClusterMaster { address: address.clone(), node: Arc::new(node) }))
    }

    /// The node's own URL, or its address with the login and TLS of the first URL.
    fn info(&self, address: &Address) -> Option<ConnectionInfo> {
        let own = self.seeds.iter().find(|seed| Address::of(seed).as_ref() == Some(address));
        if let Some(own) = own {
            return Some(own.clone());
        }
        Some(with_address(self.seeds.first()?, &address.host, address.port))
    }

    fn refreshed(&self) -> Option<Moment> {
        *self.refreshed.lock()
    }

    fn read<T>(&self, read: impl FnOnce(&SlotMap) -> T) -> T {
        read(&self.masters.read())
    }

    fn write<T>(&self, write: impl FnOnce(&mut SlotMap) -> T) -> T {
        write(&mut self.masters.write())
    }
}

enum Redirection {
    Owner,
    /// The node that imports the slot, but only for the next attempt.
    Importing(Arc<ClusterMaster>),
    None,
}

/// After this number of consecutive redirections, the nodes disagree and need time to converge.
const REDIRECTIONS: u32 = 3;

const PAUSE: Duration = Duration::from_millis(10);

/// One node may be silent, and another node slow.
const QUERIES_AT_ONCE: usize = 3;

const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn loading_master_causes_a_slot_refresh() {
        let seed = "redis://127.0.0.1:1".into_connection_info().unwrap();
        let address = Address::of(&seed).unwrap();
        let cluster =
            Arc::new(Cluster::new("cluster".into(), vec![seed], ConnectionSettings::default()));
        let master = cluster.master_at(address).unwrap();
        let loading = ErrorKind::Server(ServerErrorKind::BusyLoading);
        let loading = RedisError::from((loading, "Redis is loading the dataset in memory"));

        let next = cluster.redirection(Slot::for_key("job"), &master, &loading);

        assert!(matches!(next, Redirection::Owner));
        yield_now().await;
        assert_eq!(cluster.turn.load(Ordering::Relaxed), 1, "no node was queried for the slots");
    }
}
