//! All servers of a model, and their faults.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::conformance::{Fault, ModelContext, NetworkFaults};
use lease_redis::Dialer;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::recorders::Recorder;
use super::server::Server;
use super::server::node::Node;
use super::server::scripts::Edition;
use super::server::wire::{Link, carry};
use super::shared_random::SharedRandom;

pub(crate) struct Fleet {
    world: ModelContext,
    plan: Plan,
    random: SharedRandom,
    servers: Vec<Arc<Server>>,
    processes: usize,
    connections: Arc<AtomicU64>,
    faults: Vec<(Duration, usize, ServerFault)>,
    /// Servers that lost their data, each with the time of the server's restart.
    forgetful: Vec<(Duration, usize)>,
    set_back: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) servers: usize,
    pub(crate) edition: Edition,
    pub(crate) strikes: &'static [Strike],
    /// The number of servers that may be without their data at the same time.
    pub(crate) most_forgetful: usize,
    /// Half of the calls of these scripts fail for up to the fault's duration, in addition to the
    /// network's faults.
    pub(crate) mishaps: &'static [(&'static str, Fault)],
    pub(crate) clocks: Clocks,
    pub(crate) ttl: Duration,
    pub(crate) hung: usize,
    pub(crate) network: Network,
}

impl Plan {
    pub(crate) const HANG_AT: Duration = Duration::from_millis(300);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Reliable,
    Faulty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    Steady,
    /// A clock steps forward by a ttl before every eighth script, so a lease may expire at any
    /// time.
    LeapAhead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    Hang,
    Restart,
    Amnesia,
    KillConnections,
    FlushScripts,
    /// The network between one process and the server is partitioned for a while.
    CutOff,
    SetBack,
    /// The server's leases then expire early.
    SetForward,
    /// A replica misses the server's writes for a while. Then the replica is promoted.
    FailOver,
}

#[derive(Debug, Clone, Copy)]
enum ServerFault {
    Hung,
    CutOff(usize),
    ReplicaBehind,
    Down,
    DownAndEmpty,
}

impl Fleet {
    pub(crate) fn new(world: ModelContext, plan: Plan, recorder: &Arc<dyn Recorder>) -> Self {
        let seed = world.seed.wrapping_mul(0xD134_2543_DE82_EF95);
        let random = SharedRandom::new(!seed);
        let server = |place| {
            // The clocks of servers differ by less than a restart with its rejoin delay. With
            // larger differences tokens are not unique, as the README says.
            let node = Node::new(random.run_id(), random.part_of(Duration::from_millis(200)));
            let (recorder, ledger) = (Arc::clone(recorder), world.ledger.clone());
            let of_server = SharedRandom::new(seed ^ u64::try_from(place).unwrap());
            let server = Server::new(place, node, &plan, recorder, ledger, of_server);
            let server = Arc::new(server);
            tokio::spawn(Arc::clone(&server).serve());
            server
        };
        let servers = (0..plan.servers).map(server).collect();
        Self {
            world,
            plan,
            random,
            servers,
            processes: 0,
            connections: Arc::default(),
            faults: Vec::new(),
            forgetful: Vec::new(),
            set_back: BTreeSet::new(),
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        (0..self.servers.len()).map(|place| format!("redis://{place}:6379")).collect()
    }

    pub(crate) fn dialer(&mut self, faults: NetworkFaults) -> Dialer {
        let process = self.processes;
        self.processes += 1;
        if self.plan.network == Network::Reliable {
            faults.stop();
        }
        let (longest_silence, mishaps) = (self.plan.ttl * 2, self.plan.mishaps);
        let (world, servers) = (self.world.clone(), self.servers.clone());
        let connections = Arc::clone(&self.connections);
        Dialer::new(move |address| {
            let place: usize = address.trim_end_matches(":6379").parse().unwrap();
            let (near, far) = tokio::io::duplex(BUFFER);
            let connection = connections.fetch_add(1, Ordering::Relaxed);
            let link = Link {
                connection,
                process,
                faults: faults.clone(),
                ledger: world.ledger.clone(),
                random: SharedRandom::new(world.seed.rotate_left(32) ^ connection),
                longest_silence,
                mishaps,
            };
            world.network.spawn(carry(far, Arc::clone(&servers[place]), link));
            near
        })
    }

    pub(crate) fn strike(&mut self, random: &mut StdRng) {
        let Some(strike) = self.plan.strikes.choose(random).copied() else { return };
        let place = random.random_range(0..self.servers.len());
        let ttl = self.plan.ttl;
        let now = self.world.ledger.now();
        if self.faults.iter().any(|(_, of, _)| *of == place) || !self.may(strike, place, now) {
            return;
        }
        self.world.ledger.note(format!("server {place}: {strike:?}"));
        let server = &self.servers[place];
        let lasting = |fault, random: &mut StdRng| {
            let length = ttl.mul_f64(random.random_range(0.0..2.0));
            (now + length, place, fault)
        };
        match strike {
            Strike::Hang => {
                server.hang();
                self.faults.push(lasting(ServerFault::Hung, random));
            }
            Strike::Restart | Strike::Amnesia => {
                server.stop();
                let down = match strike {
                    Strike::Amnesia => ServerFault::DownAndEmpty,
                    _ => ServerFault::Down,
                };
                self.faults.push(lasting(down, random));
            }
            Strike::KillConnections => server.close_all(),
            Strike::FlushScripts => server.flush_scripts(),
            Strike::CutOff => {
                // Chooses one of the last processes, since earlier processes have ended.
                let process = self.processes.saturating_sub(random.random_range(1..=4));
                server.cut_off(process);
                self.faults.push(lasting(ServerFault::CutOff(process), random));
            }
            Strike::SetBack => {
                let far = random.random_bool(0.3);
                let most = if far { Duration::from_hours(1) } else { ttl * 2 };
                let by = most.mul_f64(random.random_range(0.0..1.0));
                let by = i64::try_from(by.as_micros()).unwrap();
                server.set_back(by);
                self.set_back.insert(place);
            }
            Strike::FailOver => {
                server.leave_replica_behind();
                self.faults.push(lasting(ServerFault::ReplicaBehind, random));
            }
            Strike::SetForward => {
                let by = (ttl * 2).mul_f64(random.random_range(0.0..1.0));
                server.set_back(-i64::try_from(by.as_micros()).unwrap());
            }
        }
    }

    pub(crate) fn step(&mut self) {
        let now = self.world.ledger.now();
        if now >= Plan::HANG_AT {
            self.servers.iter().take(self.plan.hung).for_each(|server| server.hang());
        }
        self.end(|until| until <= now);
    }

    pub(crate) fn heal(&mut self) {
        self.end(|_| true);
        // The end of a fail-over begins a further fault: its server is down. This call ends that
        // fault.
        self.end(|_| true);
    }

    /// Whether the README's failure table covers this strike together with earlier strikes.
    fn may(&self, strike: Strike, place: usize, now: Duration) -> bool {
        let minority = self.servers.len() - (self.servers.len() / 2 + 1);
        match strike {
            // Without its data, a server whose clock was set back would repeat tokens.
            Strike::Amnesia => {
                let going_down = self.faults.iter().filter_map(|(_, place, fault)| {
                    matches!(fault, ServerFault::DownAndEmpty).then_some(*place)
                });
                let down = self.forgetful.iter().filter(|(up, _)| *up + MEMORY > now);
                let mut forgetful: BTreeSet<_> = down.map(|(_, place)| *place).collect();
                forgetful.extend(going_down);
                forgetful.insert(place);
                !self.set_back.contains(&place) && forgetful.len() <= self.plan.most_forgetful
            }
            Strike::SetBack => {
                let forgot = self.forgetful.iter().any(|(_, forgetful)| *forgetful == place);
                place < minority.max(1) && !forgot
            }
            _ => true,
        }
    }

    fn end(&mut self, is_over: impl Fn(Duration) -> bool) {
        let faults = std::mem::take(&mut self.faults);
        let (over, lasting) = faults.into_iter().partition(|(until, ..)| is_over(*until));
        self.faults = lasting;
        let over: Vec<_> = over;
        for (_, place, fault) in over {
            let server = &self.servers[place];
            self.world.ledger.note(format!("server {place}: {fault:?} no longer"));
            match fault {
                ServerFault::Hung => server.resume(),
                ServerFault::CutOff(process) => server.reach(process),
                ServerFault::ReplicaBehind => {
                    server.stop();
                    server.promote_replica();
                    let up = self.world.ledger.now() + self.plan.ttl / 10;
                    self.faults.push((up, place, ServerFault::Down));
                }
                ServerFault::Down | ServerFault::DownAndEmpty => {
                    if matches!(fault, ServerFault::DownAndEmpty) {
                        server.forget();
                        self.forgetful.push((self.world.ledger.now(), place));
                    }
                    server.restart(self.random.run_id());
                }
            }
        }
    }
}

const BUFFER: usize = 64 * 1024;

/// How long a restarted server counts as without data: longer than the rejoin delay.
const MEMORY: Duration = Duration::from_secs(2);
