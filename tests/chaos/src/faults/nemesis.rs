//! Injects overlapping faults at random, and repairs each fault after a random time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::faults::fault::{Fault, LinkFault, OF_LOAD, ServerFault, WorkerFault, faults_of};
use crate::faults::repair::Repair;
use crate::faults::spoiled_key;
use crate::judge::ledger::{Effect, FaultRecord, Ledger, Outage, Part};
use crate::load::SharedLog;
use crate::load::log::Extent;
use crate::monotonic::Monotonic;
use crate::servers::Servers;
use crate::servers::server::Server;
use crate::setup::Setup;
use crate::store::Store;
use crate::worker::fleet::{RESTART, WorkerSlot};
use lease_test_servers::proxy::{Flow, Link};
use lease_test_servers::sync::lock;

/// Owns the servers, and blocks its thread.
#[derive(Debug)]
pub(crate) struct Nemesis {
    store: Store,
    ttl: Duration,
    pause: Duration,
    chance: Chance,
    slots: Vec<Arc<WorkerSlot>>,
    links: Vec<Vec<Arc<Link>>>,
    servers: Servers,
    repairs: Vec<(Monotonic, Repair)>,
    /// The outages that have not ended, each with its start.
    open: Vec<(Part, Monotonic)>,
    ledger: Arc<Mutex<Ledger>>,
    load: Option<SharedLog>,
}

impl Nemesis {
    pub(crate) fn new(
        setup: &Setup,
        slots: Vec<Arc<WorkerSlot>>,
        links: Vec<Vec<Arc<Link>>>,
        servers: Vec<Server>,
        (ledger, load): (&Arc<Mutex<Ledger>>, Option<&SharedLog>),
        chance: &mut Chance,
    ) -> Self {
        Self {
            store: setup.store,
            ttl: setup.ttl,
            pause: setup.pause,
            chance: Chance::from_seed(chance.seed()),
            slots,
            links,
            servers: Servers::new(servers),
            repairs: Vec::new(),
            open: Vec::new(),
            ledger: Arc::clone(ledger),
            load: load.cloned(),
        }
    }

    pub(crate) fn run(&mut self, end: Monotonic) -> Result<(), Failure> {
        let mut faults = faults_of(self.store).to_vec();
        if self.load.is_some() && self.store != Store::Dynamodb {
            faults.extend(OF_LOAD);
        }
        let mut next = Monotonic::now();
        while Monotonic::now() < end {
            self.repair(Monotonic::now())?;
            if Monotonic::now() >= next {
                match self.chance.weighted(&faults) {
                    Some(Fault::Worker(fault)) => self.fault_worker(fault)?,
                    Some(Fault::Link(fault)) => self.fault_links(fault),
                    Some(Fault::Server(fault)) => self.fault_servers(fault)?,
                    Some(Fault::ClocksForward) => self.step_forward()?,
                    Some(Fault::KeySpoiled) => self.spoil_key()?,
                    None => (),
                }
                next = Monotonic::now() + self.chance.up_to(self.pause);
            }
            sleep(Duration::from_millis(5));
        }
        self.repair_all()
    }

    fn fault_worker(&mut self, fault: WorkerFault) -> Result<(), Failure> {
        let worker = self.chance.below(self.slots.len());
        let slot = self.slots.get(worker).ok_or("there is no such worker")?;
        let name = format!("worker {}", worker + 1);
        let now = Duration::ZERO;
        match fault {
            WorkerFault::Killed => {
                self.record("worker killed", name, now);
                slot.kill();
                let (part, from) = (Part::Process(worker), Monotonic::now());
                lock(&self.ledger).outages.push(Outage { part, from, until: from + RESTART });
            }
            WorkerFault::Stopped if self.is_healthy(Repair::WakeWorker(worker)) => {
                let length = length(&mut self.chance, self.ttl);
                self.record("worker stopped for a while", name, length);
                slot.pause();
                self.schedule(length, Repair::WakeWorker(worker));
            }
            WorkerFault::Stopped => (),
            WorkerFault::ClockStepped => {
                let steps = [(1, -3600), (1, 0), (1, 3600), (1, 60), (1, -60)];
                let seconds = self.chance.weighted(&steps).unwrap_or(0);
                self.record(
                    "worker's wall clock stepped",
                    format!("{name}, to {seconds:+} s"),
                    now,
                );
                slot.set_clock(seconds)?;
            }
        }
        Ok(())
    }

    fn fault_links(&mut self, fault: LinkFault) {
        let worker = self.chance.below(self.links.len());
        let Some(links) = self.links.get(worker).cloned() else { return };
        let some = if self.chance.one_in(2) { links.len() } else { 1 };
        let length = length(&mut self.chance, self.ttl);
        let with_loss = self.chance.one_in(2);
        for server in self.chance.some_of(links.len(), some) {
            let repairs = [Repair::Heal(worker, server), Repair::HealWithLoss(worker, server)];
            let Some(link) = links.get(server) else { continue };
            if !repairs.iter().all(|repair| self.is_healthy(*repair)) {
                continue;
            }
            let to = format!("worker {} to server {}", worker + 1, server + 1);
            let slow = Flow::Delayed(self.chance.up_to(SLOWEST));
            match fault {
                LinkFault::Cut => {
                    self.record("link cut", to, length);
                    link.cut();
                }
                LinkFault::SlowRequests => {
                    self.record("requests slow", to, length);
                    link.set_requests(slow);
                }
                LinkFault::SlowReplies => {
                    self.record("replies slow", to, length);
                    link.set_replies(slow);
                }
                LinkFault::RequestsHeld => {
                    self.record("requests held", to, length);
                    link.set_requests(Flow::Held);
                }
                LinkFault::RepliesHeld => {
                    self.record("replies held", to, length);
                    link.set_replies(Flow::Held);
                }
            }
            let [all, rest] = repairs;
            self.schedule(length, if with_loss { rest } else { all });
        }
    }

    fn fault_servers(&mut self, fault: ServerFault) -> Result<(), Failure> {
        let now = Duration::ZERO;
        for number in self.healthy_servers(fault) {
            let name = format!("server {}", number + 1);
            let length = length(&mut self.chance, self.ttl);
            match fault {
                ServerFault::Stopped => {
                    self.record("server stopped for a while", name, length);
                    self.servers.get(number)?.hang()?;
                    self.schedule(length, Repair::WakeServer(number));
                }
                ServerFault::Killed => {
                    self.record("server killed, restarted with all it had", name, length);
                    self.servers.get(number)?.kill();
                    self.schedule(length, Repair::StartServer(number));
                }
                ServerFault::ConnectionsKilled => {
                    self.record("connections killed", name, now);
                    self.servers.get(number)?.kill_connections();
                }
                ServerFault::FileLocked => {
                    if self.servers.get(number)?.lock_file()? {
                        self.record("file locked by another program", name, length);
                        self.schedule(length, Repair::WakeServer(number));
                    }
                }
                ServerFault::FailedOver => self.fail_over(number, name)?,
                ServerFault::ScriptsFlushed => {
                    self.record("scripts flushed", name, now);
                    self.servers.get(number)?.command("SCRIPT FLUSH");
                }
                ServerFault::ClockBack => {
                    let seconds = self.seconds(1, 4)?;
                    let before = self.servers.clock(number)?;
                    let clock = self.servers.step_back(number, seconds)?;
                    if clock != before {
                        let to = format!("{name}, to {clock:+} s");
                        self.record("server's clock stepped back", to, now);
                    }
                }
                ServerFault::ClockWithinMargin => {
                    let clock = self.seconds(0, 2)?;
                    let to = format!("{name}, to {clock:+} s");
                    self.record("server's clock stepped by less than the margin", to, now);
                    self.servers.set_clock(number, clock)?;
                }
                ServerFault::RestartedEmpty => self.restart_empty(number, name)?,
                ServerFault::MemoryFull => {
                    self.record("memory full", name, length);
                    self.servers.get(number)?.command("CONFIG SET maxmemory 1");
                    self.schedule(length, Repair::FreeMemory(number));
                }
                ServerFault::Flushed => {
                    // A flushed server whose clock is behind would grant smaller tokens, as
                    // documented.
                    if self.servers.clock(number)? == self.servers.furthest_clock() {
                        let flush = |servers: &mut Servers| servers.flush(number);
                        self.inject("server flushed", name, FaultClass::MayOverlap, flush)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn fail_over(&mut self, number: usize, name: String) -> Result<(), Failure> {
        let lag = self.chance.up_to(self.ttl / 2);
        let fail_over = |servers: &mut Servers| {
            servers.get(number)?.fail_over(lag);
            Ok(())
        };
        let what = "failover to a standby that lags";
        self.inject(what, name, FaultClass::MayOverlap, fail_over)?;
        self.servers.get(number)?.follow_again();
        Ok(())
    }

    fn restart_empty(&mut self, number: usize, name: String) -> Result<(), Failure> {
        let (what, class) = match self.store {
            // Clients detect the restart by the run id, and the server does not vote.
            Store::Quorum => ("server restarted empty, a minority", FaultClass::Exclusive),
            _ => ("server restarted empty", FaultClass::MayOverlap),
        };
        let from = Monotonic::now();
        self.inject(what, name, class, |servers| servers.restart_empty(number))?;
        let until = Monotonic::now() + self.store.quarantine(self.ttl);
        lock(&self.ledger).outages.push(Outage { part: Part::Server(number), from, until });
        Ok(())
    }

    /// Steps the clocks of at most a bare majority. One server may suffice to break exclusion: a
    /// lease may have a bare majority of votes, and a clock step makes a server forget its vote.
    fn step_forward(&mut self) -> Result<(), Failure> {
        let what = match self.servers.count() {
            1 => "server's clock stepped forward",
            _ => "clocks of some servers stepped forward",
        };
        let count = 1 + self.chance.below(self.servers.count() / 2 + 1);
        let clock = self.servers.furthest_clock() + self.seconds(3, 10)?;
        for number in self.chance.some_of(self.servers.count(), count) {
            let to = format!("server {}, to {clock:+} s", number + 1);
            let step = |servers: &mut Servers| servers.set_clock(number, clock);
            self.inject(what, to, FaultClass::MayOverlap, step)?;
        }
        Ok(())
    }

    fn healthy_servers(&mut self, fault: ServerFault) -> Vec<usize> {
        let all = self.servers.count();
        let most = match fault {
            ServerFault::Stopped | ServerFault::Killed | ServerFault::ClockBack => all.min(3),
            // At most a minority may lack a vote. A server that restarted empty votes after its
            // rejoin delay.
            ServerFault::RestartedEmpty => {
                let rest = self.store.quarantine(self.ttl) + self.ttl;
                let room = (all / 2).max(1);
                room.saturating_sub(self.servers.emptied_after(Monotonic::now() - rest))
            }
            ServerFault::ConnectionsKilled
            | ServerFault::ScriptsFlushed
            | ServerFault::ClockWithinMargin
            | ServerFault::MemoryFull
            | ServerFault::FailedOver
            | ServerFault::FileLocked
            | ServerFault::Flushed => 1,
        };
        let count = if self.chance.one_in(3) { most } else { most.min(1) };
        let mut servers = self.chance.some_of(all, count);
        servers.retain(|&server| self.is_server_healthy(server));
        servers
    }

    fn spoil_key(&mut self) -> Result<(), Failure> {
        let Some(load) = self.load.clone() else { return Ok(()) };
        if !(0..self.servers.count()).all(|server| self.is_server_healthy(server)) {
            return Ok(());
        }
        let keys = lock(&load).load.keys;
        let length = length(&mut self.chance, self.ttl);
        self.record("keys of another type", "keys of the load".to_owned(), length);
        for _ in 0..SPOILED.min(keys.div_ceil(4)) {
            let (key, from) = (self.chance.below(keys), Monotonic::now());
            if !self.is_healthy(Repair::DeleteKey(key)) {
                continue;
            }
            // Claims may fail on some servers even if another server refuses the list. So the key
            // is recorded in any case.
            lock(&load).spoil(key, from);
            if spoiled_key::spoil(&mut self.servers, key)? {
                self.schedule(length, Repair::DeleteKey(key));
            } else {
                lock(&load).mend(key, Extent::Some);
            }
        }
        Ok(())
    }

    fn is_server_healthy(&self, server: usize) -> bool {
        [Repair::WakeServer(server), Repair::StartServer(server), Repair::FreeMemory(server)]
            .iter()
            .all(|repair| self.is_healthy(*repair))
    }

    fn schedule(&mut self, length: Duration, repair: Repair) {
        let now = Monotonic::now();
        self.open.extend(repair.part().map(|part| (part, now)));
        self.repairs.push((now + length, repair));
    }

    fn close(&mut self, repaired: Part) {
        let until = Monotonic::now();
        let (closed, open) = self.open.drain(..).partition(|(part, _)| *part == repaired);
        self.open = open;
        let closed: Vec<_> = closed;
        let outage = |(part, from)| Outage { part, from, until };
        lock(&self.ledger).outages.extend(closed.into_iter().map(outage));
    }

    fn is_healthy(&self, repair: Repair) -> bool {
        self.repairs.iter().all(|(_, due)| *due != repair)
    }

    fn repair_all(&mut self) -> Result<(), Failure> {
        // Every fault is shorter than ten ttls, so all repairs are due by then.
        self.repair(Monotonic::now() + self.ttl * 10)
    }

    fn repair(&mut self, now: Monotonic) -> Result<(), Failure> {
        let (due, rest): (Vec<_>, _) = self.repairs.drain(..).partition(|(at, _)| *at <= now);
        self.repairs = rest;
        for repair in due.into_iter().map(|(_, repair)| repair).collect::<BTreeSet<_>>() {
            let link = |worker: usize, server: usize| {
                let links = self.links.get(worker);
                links.and_then(|links| links.get(server)).ok_or("there is no such link")
            };
            match repair {
                Repair::WakeWorker(worker) => {
                    self.slots.get(worker).ok_or("there is no such worker")?.go_on();
                }
                Repair::Heal(worker, server) => link(worker, server)?.heal(),
                Repair::HealWithLoss(worker, server) => link(worker, server)?.heal_with_loss(),
                Repair::WakeServer(server) => self.servers.get(server)?.go_on()?,
                Repair::StartServer(server) => self.servers.get(server)?.start_again()?,
                Repair::FreeMemory(server) => {
                    self.servers.get(server)?.command("CONFIG SET maxmemory 0");
                }
                Repair::DeleteKey(key) => self.delete_key(key)?,
            }
            if let Some(part) = repair.part() {
                self.close(part);
            }
        }
        Ok(())
    }

    fn delete_key(&mut self, key: usize) -> Result<(), Failure> {
        if !(0..self.servers.count()).all(|server| self.is_server_healthy(server)) {
            self.repairs.push((Monotonic::now() + AGAIN, Repair::DeleteKey(key)));
            return Ok(());
        }
        spoiled_key::delete(&mut self.servers, key)?;
        if let Some(load) = &self.load {
            lock(load).mend(key, Extent::All);
        }
        Ok(())
    }

    /// Records a fault that admits only one holder. The caller injects the fault afterwards.
    fn record(&self, name: &'static str, to: String, length: Duration) {
        let from = Monotonic::now();
        let (kind, counters) = (Effect::Exclusive, None);
        self.write(FaultRecord { name, to, from, until: from + length, kind, counters });
    }

    fn inject(
        &mut self,
        name: &'static str,
        to: String,
        class: FaultClass,
        fault: impl FnOnce(&mut Servers) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let from = Monotonic::now();
        fault(&mut self.servers)?;
        let until = Monotonic::now();
        let kind = match class {
            FaultClass::Exclusive => Effect::Exclusive,
            // The former holder sent its last heartbeat before `until`, and relies on this
            // heartbeat for a ttl.
            FaultClass::MayOverlap => Effect::MayOverlap { until: until + self.ttl },
        };
        self.write(FaultRecord { name, to, from, until, kind, counters: None });
        Ok(())
    }

    fn write(&self, fault: FaultRecord) {
        lock(&self.ledger).faults.push(fault);
    }

    fn seconds(&mut self, least: i64, most: usize) -> Result<i64, Failure> {
        Ok(least + i64::try_from(self.chance.below(most))?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultClass {
    Exclusive,
    MayOverlap,
}

/// Only half of the faults may outlast a lease. Otherwise, workers would obtain few leases.
fn length(chance: &mut Chance, ttl: Duration) -> Duration {
    let longest = if chance.one_in(2) { ttl * 3 } else { ttl / 2 };
    chance.up_to(longest)
}

const SPOILED: usize = 20;

const AGAIN: Duration = Duration::from_millis(200);

const SLOWEST: Duration = Duration::from_millis(400);
