//! Who makes the trouble: picks faults by chance, does them to real processes, and mends them
//! after a while.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crate::Failure;
use crate::chance::Chance;
use crate::fleet::Berth;
use crate::ledger::{Fault, Kind, Ledger};
use crate::link::{Flow, Link};
use crate::server::Server;
use crate::servers::Servers;
use crate::setup::{Setup, Store};
use crate::stamp::Stamp;
use crate::trouble::{OfLink, OfServer, OfWorker, Trouble, troubles_of};

/// Has all that can be hurt. Blocks its thread.
#[derive(Debug)]
pub(crate) struct Nemesis {
    store: Store,
    ttl: Duration,
    chance: Chance,
    berths: Vec<Arc<Berth>>,
    /// Of each worker, to each of its servers.
    links: Vec<Vec<Arc<Link>>>,
    servers: Servers,
    mends: Vec<(Stamp, Mend)>,
    ledger: Arc<Mutex<Ledger>>,
}

/// What is still to be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mend {
    WakeWorker(usize),
    /// Of a worker, to a server.
    Heal(usize, usize),
    HealWithLoss(usize, usize),
    WakeServer(usize),
    StartServer(usize),
}

impl Nemesis {
    pub(crate) fn new(
        setup: &Setup,
        berths: Vec<Arc<Berth>>,
        links: Vec<Vec<Arc<Link>>>,
        servers: Vec<Server>,
        ledger: &Arc<Mutex<Ledger>>,
        chance: &mut Chance,
    ) -> Self {
        Self {
            store: setup.store,
            ttl: setup.ttl,
            chance: Chance::from_seed(chance.seed()),
            berths,
            links,
            servers: Servers::new(servers),
            mends: Vec::new(),
            ledger: Arc::clone(ledger),
        }
    }

    /// Makes trouble until `end`, and mends everything then.
    pub(crate) fn rage(&mut self, end: Stamp) -> Result<(), Failure> {
        let troubles = troubles_of(self.store);
        let mut next = Stamp::now();
        while Stamp::now() < end {
            self.mend(Stamp::now())?;
            if Stamp::now() >= next {
                match self.chance.weighted(troubles) {
                    Some(Trouble::Worker(trouble)) => self.hurt_worker(trouble)?,
                    Some(Trouble::Link(trouble)) => self.hurt_links(trouble),
                    Some(Trouble::Server(trouble)) => self.hurt_servers(trouble)?,
                    Some(Trouble::ClocksForward) => self.step_forward()?,
                    None => (),
                }
                next = Stamp::now() + self.chance.up_to(LONGEST_PEACE);
            }
            sleep(Duration::from_millis(5));
        }
        self.mend_all()
    }

    fn hurt_worker(&mut self, trouble: OfWorker) -> Result<(), Failure> {
        let worker = self.chance.below(self.berths.len());
        let berth = self.berths.get(worker).ok_or("there is no such worker")?;
        let name = format!("worker {}", worker + 1);
        let now = Duration::ZERO;
        match trouble {
            OfWorker::Killed => {
                self.tell("worker killed", name, now);
                berth.kill();
            }
            OfWorker::Stopped if self.is_well(Mend::WakeWorker(worker)) => {
                let length = length(&mut self.chance, self.ttl);
                self.tell("worker stopped for a while", name, length);
                berth.pause();
                self.mends.push((Stamp::now() + length, Mend::WakeWorker(worker)));
            }
            OfWorker::Stopped => (),
            OfWorker::ClockStepped => {
                let steps = [(1, -3600), (1, 0), (1, 3600), (1, 60), (1, -60)];
                let seconds = self.chance.weighted(&steps).unwrap_or(0);
                self.tell("worker's wall clock stepped", format!("{name}, to {seconds:+} s"), now);
                berth.set_clock(seconds)?;
            }
        }
        Ok(())
    }

    /// One link of a worker, or one in two times all of them.
    fn hurt_links(&mut self, trouble: OfLink) {
        let worker = self.chance.below(self.links.len());
        let Some(links) = self.links.get(worker) else { return };
        let some = if self.chance.one_in(2) { links.len() } else { 1 };
        let length = length(&mut self.chance, self.ttl);
        let with_loss = self.chance.one_in(2);
        for server in self.chance.some_of(links.len(), some) {
            let mends = [Mend::Heal(worker, server), Mend::HealWithLoss(worker, server)];
            let Some(link) = links.get(server) else { continue };
            if !mends.iter().all(|mend| self.is_well(*mend)) {
                continue;
            }
            let to = format!("worker {} to server {}", worker + 1, server + 1);
            let slow = Flow::Slow(self.chance.up_to(SLOWEST));
            match trouble {
                OfLink::Cut => {
                    self.tell("link cut", to, length);
                    link.cut();
                }
                OfLink::SlowRequests => {
                    self.tell("requests slow", to, length);
                    link.set_requests(slow);
                }
                OfLink::SlowReplies => {
                    self.tell("replies slow", to, length);
                    link.set_replies(slow);
                }
                OfLink::RequestsHeld => {
                    self.tell("requests kept back", to, length);
                    link.set_requests(Flow::Held);
                }
                OfLink::RepliesHeld => {
                    self.tell("replies kept back", to, length);
                    link.set_replies(Flow::Held);
                }
            }
            let [all, rest] = mends;
            self.mends.push((Stamp::now() + length, if with_loss { rest } else { all }));
        }
    }

    fn hurt_servers(&mut self, trouble: OfServer) -> Result<(), Failure> {
        let now = Duration::ZERO;
        for number in self.well_servers(trouble) {
            let name = format!("server {}", number + 1);
            let length = length(&mut self.chance, self.ttl);
            match trouble {
                OfServer::Stopped => {
                    self.tell("server stopped for a while", name, length);
                    self.servers.get(number)?.hang()?;
                    self.mends.push((Stamp::now() + length, Mend::WakeServer(number)));
                }
                OfServer::Killed => {
                    self.tell("server killed, restarted with all it had", name, length);
                    self.servers.get(number)?.kill();
                    self.mends.push((Stamp::now() + length, Mend::StartServer(number)));
                }
                OfServer::ConnectionsKilled => {
                    self.tell("connections killed", name, now);
                    self.servers.get(number)?.command("CLIENT KILL TYPE normal");
                    self.servers.get(number)?.command("CLIENT KILL TYPE pubsub");
                }
                OfServer::ScriptsFlushed => {
                    self.tell("scripts flushed", name, now);
                    self.servers.get(number)?.command("SCRIPT FLUSH");
                }
                OfServer::ClockBack => {
                    let seconds = self.seconds(1, 4)?;
                    let before = self.servers.clock(number)?;
                    let clock = self.servers.step_back(number, seconds)?;
                    if clock != before {
                        let to = format!("{name}, to {clock:+} s");
                        self.tell("server's clock stepped back", to, now);
                    }
                }
                OfServer::ClockWithinMargin => {
                    let clock = self.seconds(0, 2)?;
                    let to = format!("{name}, to {clock:+} s");
                    self.tell("server's clock stepped by less than the margin", to, now);
                    self.servers.set_clock(number, clock)?;
                }
                OfServer::RestartedEmpty => {
                    let (what, temper) = match self.store {
                        // It is told apart from one that was up all the time, and does not vote.
                        Store::Quorum => ("server restarted empty, a minority", Temper::Tame),
                        _ => ("server restarted empty", Temper::Wild),
                    };
                    self.tell_of(what, name, temper, |servers| servers.restart_empty(number))?;
                }
                OfServer::Flushed => {
                    // One that is behind would give smaller tokens: the one hole.
                    if self.servers.clock(number)? == self.servers.furthest_clock() {
                        let flush = |servers: &mut Servers| servers.flush(number);
                        self.tell_of("server flushed", name, Temper::Wild, flush)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Of a majority, or of fewer: a lease that was just granted may be on no more servers than
    /// it needs, and then one that forgets is enough.
    fn step_forward(&mut self) -> Result<(), Failure> {
        let what = match self.servers.count() {
            1 => "server's clock stepped forward",
            _ => "clocks of some servers stepped forward",
        };
        let count = 1 + self.chance.below(self.servers.count() / 2 + 1);
        // By more than a ttl: every lease ends.
        let clock = self.servers.furthest_clock() + self.seconds(3, 10)?;
        for number in self.chance.some_of(self.servers.count(), count) {
            let to = format!("server {}, to {clock:+} s", number + 1);
            let step = |servers: &mut Servers| servers.set_clock(number, clock);
            self.tell_of(what, to, Temper::Wild, step)?;
        }
        Ok(())
    }

    /// One server in most cases, of those that are neither stopped nor down.
    fn well_servers(&mut self, trouble: OfServer) -> Vec<usize> {
        let all = self.servers.count();
        let most = match trouble {
            OfServer::Stopped | OfServer::Killed | OfServer::ClockBack => all.min(3),
            // A minority at most, until those of before vote again.
            OfServer::RestartedEmpty => {
                let rest = self.store.quarantine(self.ttl) + self.ttl;
                let room = (all / 2).max(1);
                room.saturating_sub(self.servers.emptied_after(Stamp::now() - rest))
            }
            OfServer::ConnectionsKilled
            | OfServer::ScriptsFlushed
            | OfServer::ClockWithinMargin
            | OfServer::Flushed => 1,
        };
        let count = if self.chance.one_in(3) { most } else { most.min(1) };
        let mut servers = self.chance.some_of(all, count);
        servers.retain(|&server| {
            self.is_well(Mend::WakeServer(server)) && self.is_well(Mend::StartServer(server))
        });
        servers
    }

    fn is_well(&self, mend: Mend) -> bool {
        self.mends.iter().all(|(_, due)| *due != mend)
    }

    fn mend_all(&mut self) -> Result<(), Failure> {
        // Nothing lasts as long.
        self.mend(Stamp::now() + self.ttl * 10)
    }

    /// Mends what is due at `now`.
    fn mend(&mut self, now: Stamp) -> Result<(), Failure> {
        let (due, rest): (Vec<_>, _) = self.mends.drain(..).partition(|(at, _)| *at <= now);
        self.mends = rest;
        for mend in due.into_iter().map(|(_, mend)| mend).collect::<BTreeSet<_>>() {
            let link = |worker: usize, server: usize| {
                let links = self.links.get(worker);
                links.and_then(|links| links.get(server)).ok_or("there is no such link")
            };
            match mend {
                Mend::WakeWorker(worker) => {
                    self.berths.get(worker).ok_or("there is no such worker")?.go_on();
                }
                Mend::Heal(worker, server) => link(worker, server)?.heal(),
                Mend::HealWithLoss(worker, server) => link(worker, server)?.heal_with_loss(),
                Mend::WakeServer(server) => self.servers.get(server)?.go_on()?,
                Mend::StartServer(server) => self.servers.get(server)?.start_again()?,
            }
        }
        Ok(())
    }

    /// Tells of a tame fault, before it is done.
    fn tell(&self, name: &'static str, to: String, length: Duration) {
        let from = Stamp::now();
        let (kind, counters) = (Kind::Tame, None);
        self.write(Fault { name, to, from, until: from + length, kind, counters });
    }

    /// Does a fault, and tells between which moments that was.
    fn tell_of(
        &mut self,
        name: &'static str,
        to: String,
        temper: Temper,
        hurt: impl FnOnce(&mut Servers) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let from = Stamp::now();
        hurt(&mut self.servers)?;
        let until = Stamp::now();
        let kind = match temper {
            Temper::Tame => Kind::Tame,
            // The former holder's last heartbeat was sent before; it trusts that for a ttl.
            Temper::Wild => Kind::Wild { until: until + self.ttl },
        };
        self.write(Fault { name, to, from, until, kind, counters: None });
        Ok(())
    }

    fn write(&self, fault: Fault) {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
    }

    fn seconds(&mut self, least: i64, most: usize) -> Result<i64, Failure> {
        Ok(least + i64::try_from(self.chance.below(most))?)
    }
}

/// Whether a fault may let a key be held twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    Tame,
    Wild,
}

/// How long a fault lasts. A long one outlasts leases; among many of those, little would happen
/// that they could hurt.
fn length(chance: &mut Chance, ttl: Duration) -> Duration {
    let longest = if chance.one_in(2) { ttl * 3 } else { ttl / 2 };
    chance.up_to(longest)
}

/// How long the nemesis waits at most from one fault to the next.
const LONGEST_PEACE: Duration = Duration::from_secs(1);

/// By how much a link is slow at most.
const SLOWEST: Duration = Duration::from_millis(400);
