//! All servers of a model, and what befalls them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::conformance::{Fault, ModelContext, NetworkFaults};
use lease_redis::Dialer;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::chance::Chance;
use super::clerk::Clerk;
use super::node::Node;
use super::scripts::Edition;
use super::server::Server;
use super::wire::{Way, carry};

/// Servers at `redis://0:6379`, `redis://1:6379` and so on.
pub(crate) struct Fleet {
    world: ModelContext,
    plan: Plan,
    chance: Chance,
    servers: Vec<Arc<Server>>,
    processes: usize,
    connections: Arc<AtomicU64>,
    /// What lasts, and until when.
    troubles: Vec<(Duration, usize, Trouble)>,
    /// Servers that lost their memory, and when they were up again.
    forgetful: Vec<(Duration, usize)>,
    set_back: BTreeSet<usize>,
}

/// How many servers there are, which scripts they run, and what may befall them.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) servers: usize,
    pub(crate) edition: Edition,
    pub(crate) strikes: &'static [Strike],
    /// So many servers may be without their memory at a time.
    pub(crate) most_forgetful: usize,
    /// Scripts of which every other meets a fault besides those of the faults, for up to so long.
    pub(crate) mishaps: &'static [(&'static str, Fault)],
    pub(crate) clocks: Clocks,
    pub(crate) ttl: Duration,
    /// So many servers hang from [`HANG_AT`](Self::HANG_AT) on, for ever.
    pub(crate) hung: usize,
    pub(crate) skies: Skies,
}

impl Plan {
    pub(crate) const HANG_AT: Duration = Duration::from_millis(300);
}

/// Whether requests meet faults on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skies {
    Clear,
    Rough,
}

/// What the clocks of servers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    GoOn,
    /// They leap by a ttl, before every eighth script: a lease may run out at any time.
    LeapAhead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// It does nothing for a while, and goes on.
    Hang,
    /// It starts again with all it had.
    Restart,
    /// It starts again empty.
    Amnesia,
    /// `CLIENT KILL`.
    KillConnections,
    /// `SCRIPT FLUSH`.
    FlushScripts,
    /// One process and it do not reach each other for a while.
    CutOff,
    /// Its clock is set back.
    SetBack,
    /// Its clock is set forward: what it keeps ends early.
    SetForward,
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Hung,
    CutOff(usize),
    Down,
    DownAndEmpty,
}

impl Fleet {
    pub(crate) fn new(world: ModelContext, plan: Plan) -> Self {
        let seed = world.seed.wrapping_mul(0xD134_2543_DE82_EF95);
        let chance = Chance::new(!seed);
        let majority = plan.servers / 2 + 1;
        let clerk = Arc::new(Clerk::new(majority, world.ledger.clone()));
        let server = |place| {
            // Clocks of servers differ by less than a restart and its quarantine take: beyond
            // that, tokens have a hole, which the README names.
            let node = Node::new(chance.run_id(), chance.part_of(Duration::from_millis(200)));
            let (clerk, ledger) = (Arc::clone(&clerk), world.ledger.clone());
            let of_server = Chance::new(seed ^ u64::try_from(place).unwrap());
            let server = Server::new(place, node, &plan, clerk, ledger, of_server);
            let server = Arc::new(server);
            tokio::spawn(Arc::clone(&server).serve());
            server
        };
        let servers = (0..plan.servers).map(server).collect();
        Self {
            world,
            plan,
            chance,
            servers,
            processes: 0,
            connections: Arc::default(),
            troubles: Vec::new(),
            forgetful: Vec::new(),
            set_back: BTreeSet::new(),
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        (0..self.servers.len()).map(|place| format!("redis://{place}:6379")).collect()
    }

    /// A process that has just started reaches the servers by this.
    pub(crate) fn dialer(&mut self, faults: NetworkFaults) -> Dialer {
        let process = self.processes;
        self.processes += 1;
        if self.plan.skies == Skies::Clear {
            faults.stop();
        }
        let (longest_silence, mishaps) = (self.plan.ttl * 2, self.plan.mishaps);
        let (world, servers) = (self.world.clone(), self.servers.clone());
        let connections = Arc::clone(&self.connections);
        Dialer::new(move |address| {
            let place: usize = address.trim_end_matches(":6379").parse().unwrap();
            let (near, far) = tokio::io::duplex(BUFFER);
            let connection = connections.fetch_add(1, Ordering::Relaxed);
            let way = Way {
                connection,
                process,
                faults: faults.clone(),
                ledger: world.ledger.clone(),
                chance: Chance::new(world.seed.rotate_left(32) ^ connection),
                longest_silence,
                mishaps,
            };
            world.network.spawn(carry(far, Arc::clone(&servers[place]), way));
            near
        })
    }

    pub(crate) fn strike(&mut self, random: &mut StdRng) {
        let Some(strike) = self.plan.strikes.choose(random).copied() else { return };
        let place = random.random_range(0..self.servers.len());
        let ttl = self.plan.ttl;
        let now = self.world.ledger.now();
        if self.troubles.iter().any(|(_, of, _)| *of == place) || !self.may(strike, place, now) {
            return;
        }
        self.world.ledger.note(format!("server {place}: {strike:?}"));
        let server = &self.servers[place];
        let lasting = |trouble, random: &mut StdRng| {
            let length = ttl.mul_f64(random.random_range(0.0..2.0));
            (now + length, place, trouble)
        };
        match strike {
            Strike::Hang => {
                server.hang();
                self.troubles.push(lasting(Trouble::Hung, random));
            }
            Strike::Restart | Strike::Amnesia => {
                server.stop();
                let down = match strike {
                    Strike::Amnesia => Trouble::DownAndEmpty,
                    _ => Trouble::Down,
                };
                self.troubles.push(lasting(down, random));
            }
            Strike::KillConnections => server.close_all(),
            Strike::FlushScripts => server.flush_scripts(),
            Strike::CutOff => {
                // The processes that were started last are those that live.
                let process = self.processes.saturating_sub(random.random_range(1..=4));
                server.cut_off(process);
                self.troubles.push(lasting(Trouble::CutOff(process), random));
            }
            Strike::SetBack => {
                let far = random.random_bool(0.3);
                let most = if far { Duration::from_hours(1) } else { ttl * 2 };
                let by = most.mul_f64(random.random_range(0.0..1.0));
                let by = i64::try_from(by.as_micros()).unwrap();
                server.set_back(by);
                self.set_back.insert(place);
            }
            Strike::SetForward => {
                let by = (ttl * 2).mul_f64(random.random_range(0.0..1.0));
                server.set_back(-i64::try_from(by.as_micros()).unwrap());
            }
        }
    }

    /// Ends what is over.
    pub(crate) fn step(&mut self) {
        let now = self.world.ledger.now();
        if now >= Plan::HANG_AT {
            self.servers.iter().take(self.plan.hung).for_each(|server| server.hang());
        }
        self.end(|until| until <= now);
    }

    pub(crate) fn heal(&mut self) {
        self.end(|_| true);
    }

    /// Whether the failure table covers it, together with what befell the servers before.
    fn may(&self, strike: Strike, place: usize, now: Duration) -> bool {
        let minority = self.servers.len() - (self.servers.len() / 2 + 1);
        match strike {
            // A clock that was set back and a memory that is lost: the hole in the tokens.
            Strike::Amnesia => {
                let going_down = self.troubles.iter().filter_map(|(_, place, trouble)| {
                    matches!(trouble, Trouble::DownAndEmpty).then_some(*place)
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
        let troubles = std::mem::take(&mut self.troubles);
        let (over, lasting) = troubles.into_iter().partition(|(until, ..)| is_over(*until));
        self.troubles = lasting;
        let over: Vec<_> = over;
        for (_, place, trouble) in over {
            let server = &self.servers[place];
            self.world.ledger.note(format!("server {place}: {trouble:?} no longer"));
            match trouble {
                Trouble::Hung => server.go_on(),
                Trouble::CutOff(process) => server.reach(process),
                Trouble::Down | Trouble::DownAndEmpty => {
                    if matches!(trouble, Trouble::DownAndEmpty) {
                        server.forget();
                        self.forgetful.push((self.world.ledger.now(), place));
                    }
                    server.restart(self.chance.run_id());
                }
            }
        }
    }
}

/// As much as a kernel keeps of what nobody has read.
const BUFFER: usize = 64 * 1024;

/// How long a server that was empty counts as forgetful: until it votes again, or longer.
const MEMORY: Duration = Duration::from_secs(2);
