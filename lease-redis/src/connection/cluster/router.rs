//! A Cluster: each of its masters has a connection of its own, so that a silent one delays no other.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use lease_core::{BootClock, Clock, Moment};
use redis::cluster_routing::Slot;
use redis::{Client, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::address::{Address, at};
use crate::connection::Connector;
use crate::error::Fault;
use crate::node::{Check, Node, Queue};
use crate::reach::Common;
use crate::request::{Asking, Request};
use crate::topology::{Range, read_slots};
use crate::watch::Watch;

/// The masters of a Cluster, and which has which slot.
pub(crate) struct Cluster {
    name: Arc<str>,
    /// Where the store was told that nodes are.
    seeds: Vec<ConnectionInfo>,
    common: Common,
    masters: RwLock<Masters>,
    /// Held while nodes are asked who has which slot.
    refreshing: Arc<tokio::sync::Mutex<()>>,
    refreshed: Mutex<Option<Moment>>,
    /// Which candidate a refresh begins with: another each time.
    turn: AtomicUsize,
    clock: BootClock,
}

#[derive(Default)]
struct Masters {
    all: HashMap<Address, Arc<Master>>,
    by_slot: HashMap<Slot, Arc<Master>>,
}

struct Master {
    address: Address,
    node: Node,
}

impl Cluster {
    pub(crate) fn new(name: Arc<str>, seeds: Vec<ConnectionInfo>, common: Common) -> Self {
        Self {
            name,
            seeds,
            common,
            masters: RwLock::default(),
            refreshing: Arc::default(),
            refreshed: Mutex::default(),
            turn: AtomicUsize::new(0),
            clock: BootClock::new(),
        }
    }

    /// Connects to every master. Some may be silent: the others serve their slots meanwhile.
    pub(crate) async fn connect(self: &Arc<Self>, limit: Duration) -> Result<(), Fault> {
        let refresh = timeout(limit, self.refresh(None)).await;
        refresh.unwrap_or_else(|_elapsed| Err(Fault::late(&self.name, limit)))?;
        let masters: Vec<_> = self.read(|masters| masters.all.values().cloned().collect());
        let looks = masters.iter().map(|master| master.node.connect_alone());
        let mut looks: FuturesUnordered<_> = looks.collect();
        let (mut connected, mut faults) = (0, Vec::new());
        while let Some(look) = looks.next().await {
            match look {
                Ok(()) => connected += 1,
                Err(fault) if fault.passes() => faults.push(fault),
                Err(fault) => return Err(fault),
            }
        }
        if connected == 0 {
            return Err(Fault::of_all(&format!("{}: no master answered", self.name), &faults));
        }
        Ok(())
    }

    /// Sends a request to whichever master has its key, wherever that moves meanwhile.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: Request<'_>,
        queue: Queue,
    ) -> Result<Value, Fault> {
        let (limit, started) = (self.common.timeout, self.clock.now());
        let slot = Slot::for_key(request.key());
        let mut ask = None;
        let mut left = limit;
        let mut refusals = 0;
        let mut last_refusal = None;
        loop {
            let (master, asking) = match ask.take() {
                Some(master) => (master, Asking::Yes),
                None => (self.master_of(slot, left).await?, Asking::No),
            };
            let error = match master.node.attempt(request, asking, queue, left).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(fault) => {
                    // Silent, gone, or a replica by now: another may have its slots.
                    self.refresh_later(Some(&master.address));
                    // Little time was left: the refusals before say more.
                    return Err(last_refusal.unwrap_or(fault));
                }
            };
            let fault = Fault::from_node_of_cluster(&master.node.name, &error);
            match self.after(slot, &master, &error) {
                Next::Owner => (),
                Next::Ask(other) => ask = Some(other),
                Next::GiveUp => return Err(fault),
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

    /// Watches `channel` on whichever master has its slot.
    pub(crate) async fn watch(self: &Arc<Self>, channel: String) -> Result<Watch, Fault> {
        let slot = Slot::for_key(&channel);
        let master = self.master_of(slot, self.common.timeout).await?;
        let watch = master.node.watches.watch(channel).await;
        if watch.is_err() {
            self.refresh_later(Some(&master.address));
        }
        watch
    }

    /// What to do about an error of `master`.
    fn after(self: &Arc<Self>, slot: Slot, master: &Arc<Master>, error: &RedisError) -> Next {
        let redirected = || {
            let (address, _) = error.redirect_node()?;
            self.master_at(Address::parse(address, &master.address)?)
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => match redirected() {
                Some(other) => Next::Ask(other),
                None => Next::GiveUp,
            },
            ErrorKind::Server(ServerErrorKind::Moved) => {
                if let Some(other) = redirected() {
                    self.write(|masters| masters.by_slot.insert(slot, other));
                }
                self.refresh_later(None);
                Next::Owner
            }
            // The keys of one request are on two nodes just now.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Next::Owner,
            ErrorKind::Server(
                ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => {
                self.refresh_later(Some(&master.address));
                Next::Owner
            }
            _ => {
                if error.is_connection_dropped() {
                    self.refresh_later(Some(&master.address));
                }
                Next::GiveUp
            }
        }
    }

    async fn master_of(
        self: &Arc<Self>,
        slot: Slot,
        limit: Duration,
    ) -> Result<Arc<Master>, Fault> {
        let known = || self.read(|masters| masters.by_slot.get(&slot).cloned());
        if let Some(master) = known() {
            return Ok(master);
        }
        let refresh = timeout(limit, self.refresh(None)).await;
        refresh.unwrap_or_else(|_elapsed| Err(Fault::late(&self.name, limit)))?;
        known().ok_or_else(|| {
            Fault::unavailable(format!("{}: no master has the slot {slot:?} just now", self.name))
        })
    }

    /// Asks who has which slot. The node at `doubtful` is asked last: it may be cut off from the
    /// others, and not know that it was replaced.
    async fn refresh(&self, doubtful: Option<&Address>) -> Result<(), Fault> {
        let before = self.clock.now();
        let _refreshing = self.refreshing.lock().await;
        if self.refreshed().is_some_and(|at| at > before) {
            return Ok(()); // by somebody else, meanwhile
        }
        let candidates = self.candidates(doubtful).into_iter();
        let asked: Vec<_> = candidates.map(|candidate| self.ask(candidate)).collect();
        let mut asked = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
        let mut faults = Vec::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(ranges) => {
                    self.learn(&ranges);
                    return Ok(());
                }
                Err(fault) => faults.push(fault),
            }
        }
        Err(Fault::of_all(&format!("{}: no node answered", self.name), &faults))
    }

    /// The same, on a task of its own, unless it was done just now.
    fn refresh_later(self: &Arc<Self>, doubtful: Option<&Address>) {
        let now = self.clock.now();
        let lately = self.refreshed().is_some_and(|at| now.since(at) < LEAST_BETWEEN_REFRESHES);
        if lately || self.refreshing.try_lock().is_err() {
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
        // Stable: the others keep their order.
        addresses.sort_by_key(|address| Some(address) == doubtful);
        addresses.iter().filter_map(|address| self.info(address)).collect()
    }

    async fn ask(&self, candidate: ConnectionInfo) -> Result<Vec<Range>, Fault> {
        let name = format!("redis cluster node at {}", candidate.addr());
        let refused = |error: RedisError| Fault::from_redis(&name, &error);
        let client = Client::open(candidate.clone()).map_err(refused)?;
        let config = self.common.connection_config();
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(refused)?;
        let slots = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let slots: Value = slots.query_async(&mut connection).await.map_err(refused)?;
        let asked = Address::of(&candidate);
        let ranges = asked.and_then(|asked| read_slots(&slots, &asked));
        let ranges = ranges.ok_or_else(|| {
            Fault::corrupt(format!("{name} answers CLUSTER SLOTS with something else"))
        })?;
        if ranges.is_empty() {
            return Err(Fault::unavailable(format!("{name} knows of no slots just now")));
        }
        Ok(ranges)
    }

    fn learn(&self, ranges: &[Range]) {
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
            *masters = Masters { all, by_slot };
        });
        let now = self.clock.now();
        *self.refreshed.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

impl Cluster {
    fn master_at(&self, address: Address) -> Option<Arc<Master>> {
        if let Some(known) = self.read(|masters| masters.all.get(&address).cloned()) {
            return Some(known);
        }
        let master = self.make(&address)?;
        self.write(|masters| {
            let entry = masters.all.entry(address).or_insert(master);
            Some(Arc::clone(entry))
        })
    }

    fn make(&self, address: &Address) -> Option<Arc<Master>> {
        let info = self.info(address)?;
        let config = self.common.connection_config();
        let client = Client::open(info).ok()?;
        let connector = Connector::Shard { client: Box::new(client), config: Box::new(config) };
        let check = Check { eviction: self.common.eviction, admit: Box::new(|_| Ok(())) };
        let name = format!("redis cluster node at {address}");
        let node = self.common.node(name, connector, check);
        Some(Arc::new(Master { address: address.clone(), node }))
    }

    /// How to connect to a node: with the first URL's login and TLS, unless it has a URL of its own.
    fn info(&self, address: &Address) -> Option<ConnectionInfo> {
        let own = self.seeds.iter().find(|seed| Address::of(seed).as_ref() == Some(address));
        if let Some(own) = own {
            return Some(own.clone());
        }
        Some(at(self.seeds.first()?, &address.host, address.port))
    }

    fn refreshed(&self) -> Option<Moment> {
        *self.refreshed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&Masters) -> T) -> T {
        read(&self.masters.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Masters) -> T) -> T {
        write(&mut self.masters.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where a request goes that was refused.
enum Next {
    /// To whichever master has the slot by then.
    Owner,
    /// To a node that is taking the slot over, this once.
    Ask(Arc<Master>),
    GiveUp,
}

/// So many in a row are part of a slot's move; more are a disagreement, which takes time to settle.
const REDIRECTIONS: u32 = 3;

const PAUSE: Duration = Duration::from_millis(10);

/// One may be silent, and another slow.
const ASKED_AT_ONCE: usize = 3;

/// Many calls may fail at once, of which one refresh is enough.
const LEAST_BETWEEN_REFRESHES: Duration = Duration::from_millis(100);
