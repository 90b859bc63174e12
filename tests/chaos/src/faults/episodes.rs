//! Injects faults one at a time, and waits after each repair until the servers recover.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use lease_test_servers::sync::lock;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::faults::single_fault::SingleFault;
use crate::judge::canary::Canary;
use crate::judge::ledger::{Effect, FaultRecord, Ledger};
use crate::judge::observations::{Episode, Observations, ShardLog, Slice};
use crate::monotonic::Monotonic;
use crate::probe::process::{Probe, Purpose};
use crate::servers::hash_slots::keys_in;
use crate::servers::topology::Topology;
use crate::setup::{Sabotage, Setup};
use crate::store::Store;
use crate::worker::fleet::WorkerSlot;

#[derive(Debug)]
pub(crate) struct Episodes {
    pub(crate) setup: Setup,
    pub(crate) topology: Topology,
    pub(crate) chance: Chance,
    canaries: Vec<Canary>,
    slots: Vec<Arc<WorkerSlot>>,
    probes: Vec<Probe>,
    seen: Arc<Mutex<Observations>>,
    ledger: Arc<Mutex<Ledger>>,
    pub(crate) clocks: Vec<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) to: String,
    pub(crate) hit: BTreeSet<usize>,
    /// The time at which leases ended early for a reason other than a promotion.
    pub(crate) forgot: Option<Monotonic>,
    pub(crate) full: Option<(usize, Monotonic, Monotonic)>,
    pub(crate) slices: Vec<Slice>,
}

impl Episodes {
    pub(crate) fn start(
        setup: &Setup,
        topology: Topology,
        slots: Vec<Arc<WorkerSlot>>,
        seen: &Arc<Mutex<Observations>>,
        ledger: &Arc<Mutex<Ledger>>,
        chance: &mut Chance,
    ) -> Result<Self, Failure> {
        let canaries = (0..topology.shards.len()).map(|shard| {
            let members = topology.addresses(shard);
            // This key is on the shard, but not in the slot that moves.
            let key = keys_in(topology.slot(shard) + 1, 1).concat();
            let counters = (0..setup.counters)
                .filter(|counter| topology.shard_of_key(&format!("counter-{counter}")) == shard);
            Canary::start(shard, members, key, counters.collect(), seen, ledger)
        });
        let mut episodes = Self {
            canaries: canaries.collect(),
            clocks: vec![0; topology.servers.len()],
            setup: setup.clone(),
            topology,
            chance: Chance::from_seed(chance.seed()),
            slots,
            probes: Vec::new(),
            seen: Arc::clone(seen),
            ledger: Arc::clone(ledger),
        };
        let steady = episodes.probe("steady", Purpose::Steady)?;
        episodes.probes.push(steady);
        if setup.store == Store::Quorum {
            let contention = episodes.probe("contention", Purpose::Contention(CONTENDERS))?;
            episodes.probes.push(contention);
        }
        Ok(episodes)
    }

    /// Injects one fault after another until `end`, all kinds in turn. Each kind that the command
    /// line chooses is injected at least once. A fault that has begun before `end` is completed.
    pub(crate) fn run(&mut self, end: Monotonic) -> Result<(), Failure> {
        let kinds = self.setup.kinds.clone();
        let all = SingleFault::all_of(self.setup.store, self.setup.clocks);
        let least = if kinds == all { 0 } else { kinds.len() };
        for (number, kind) in kinds.into_iter().cycle().enumerate() {
            self.pass(CALM)?;
            if number >= least && Monotonic::now() >= end {
                return Ok(());
            }
            self.episode(kind)?;
        }
        Ok(())
    }

    fn episode(&mut self, fault: SingleFault) -> Result<(), Failure> {
        let from = Monotonic::now();
        let mut outcome = self.make(fault)?;
        self.settle()?;
        let settled = Monotonic::now();
        // After any fault, Sentinels and nodes may promote a replica by mistake.
        let promoted: BTreeMap<_, _> = {
            let seen = self.seen();
            let shards = seen.shards.iter().enumerate();
            let last = |log: &ShardLog| log.promoted.last().copied().filter(|at| *at >= from);
            shards.filter_map(|(shard, log)| Some((shard, last(log)?))).collect()
        };
        outcome.hit.extend(promoted.keys());
        let Outcome { to, hit, forgot, full, slices } = outcome;
        let fault_of = |kind, counters| {
            let (name, to) = (fault.name(), to.clone());
            FaultRecord { name, to, from, until: settled, kind, counters }
        };
        let mut faults = Vec::new();
        for &shard in &hit {
            let counters = (0..self.setup.counters).filter(|counter| {
                self.topology.shard_of_key(&format!("counter-{counter}")) == shard
            });
            // The former holders sent their last heartbeats before this time, and rely on these
            // heartbeats for a ttl.
            if let Some(at) = forgot.max(promoted.get(&shard).copied()) {
                let kind = Effect::MayOverlap { until: at + self.setup.ttl };
                faults.push(fault_of(kind, Some(counters.collect())));
            }
        }
        if faults.is_empty() {
            faults.push(fault_of(Effect::Exclusive, None));
        }
        self.ledger().faults.extend(faults);
        self.seen().episodes.push(Episode { fault, to, from, settled, hit, full, slices });
        Ok(())
    }

    pub(crate) fn probe(&mut self, name: &str, purpose: Purpose) -> Result<Probe, Failure> {
        let address = match self.setup.sabotage {
            Some(Sabotage::OneHost) => self.topology.first_address(),
            _ => self.topology.address(),
        };
        // Each purpose has separate keys, since a key that one probe holds is not free for another.
        let first = match purpose {
            Purpose::Steady => 0,
            Purpose::Newcomer => KEYS,
            Purpose::Contention(_) => 2 * KEYS,
        };
        let shards = 0..self.topology.shards.len();
        let keys = shards.map(|shard| {
            let keys = keys_in(self.topology.slot(shard), first + KEYS);
            keys.into_iter().skip(first).collect()
        });
        let keys: Vec<Vec<String>> = keys.collect();
        Probe::start(&address, name, &keys, purpose, &self.seen)
    }

    /// Meanwhile kills workers, stops workers, and steps their wall clocks.
    pub(crate) fn pass(&mut self, length: Duration) -> Result<(), Failure> {
        let end = Monotonic::now() + length;
        let mut next = Monotonic::now() + self.chance.up_to(LONGEST_PAUSE);
        let mut stopped: Vec<(Monotonic, usize)> = Vec::new();
        while Monotonic::now() < end {
            let now = Monotonic::now();
            stopped.retain(|(until, worker)| {
                let wakes = *until <= now;
                if let Some(slot) = self.slots.get(*worker).filter(|_| wakes) {
                    slot.go_on();
                }
                !wakes
            });
            if now >= next {
                next = now + self.chance.up_to(LONGEST_PAUSE);
                stopped.extend(self.fault_worker()?);
            }
            sleep(GLANCE);
        }
        for (_, worker) in stopped {
            if let Some(slot) = self.slots.get(worker) {
                slot.go_on();
            }
        }
        Ok(())
    }

    fn fault_worker(&mut self) -> Result<Option<(Monotonic, usize)>, Failure> {
        let worker = self.chance.below(self.slots.len());
        let slot = self.slots.get(worker).ok_or("there is no such worker")?;
        let from = Monotonic::now();
        let length = self.chance.up_to(self.setup.ttl * 3 / 2);
        let (name, until, stopped) = match self.chance.below(3) {
            0 => {
                slot.kill();
                ("worker killed", from, None)
            }
            1 => {
                slot.pause();
                ("worker stopped for a while", from + length, Some((from + length, worker)))
            }
            _ => {
                slot.set_clock(self.chance.weighted(&[(1, -3600), (1, 0), (1, 60)]).unwrap_or(0))?;
                ("worker's wall clock stepped", from, None)
            }
        };
        let (to, kind, counters) = (format!("worker {}", worker + 1), Effect::Exclusive, None);
        self.ledger().faults.push(FaultRecord { name, to, from, until, kind, counters });
        Ok(stopped)
    }

    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        let began = Monotonic::now();
        while !self.topology.is_settled() {
            if Monotonic::now().since(began) > LONGEST_RECOVERY {
                return Err("the servers did not agree on their masters within 3 minutes".into());
            }
            self.pass(Duration::from_millis(500))?;
        }
        Ok(())
    }

    pub(crate) fn await_promotion(&mut self, shard: usize, former: usize) -> Result<(), Failure> {
        let began = Monotonic::now();
        while self.master(shard)? == former && Monotonic::now().since(began) < LONGEST_PROMOTION {
            self.pass(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// The server that acknowledges the judge's writes.
    pub(crate) fn master(&self, shard: usize) -> Result<usize, Failure> {
        let canary = self.canaries.get(shard).ok_or("there is no such shard")?;
        let members = self.topology.members(shard);
        members.get(canary.master()).copied().ok_or_else(|| "there is no such server".into())
    }

    pub(crate) fn masters(&self) -> Result<Vec<usize>, Failure> {
        (0..self.topology.shards.len()).map(|shard| self.master(shard)).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Observations> {
        lock(&self.seen)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

const CALM: Duration = Duration::from_secs(2);

/// The longest pause between two faults of a worker.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

const GLANCE: Duration = Duration::from_millis(5);

/// A Sentinel takes ten seconds to make a former master follow the new master.
const LONGEST_RECOVERY: Duration = Duration::from_mins(3);

/// The servers decide on a promotion, not the library.
const LONGEST_PROMOTION: Duration = Duration::from_mins(1);

/// Each probe has one key for the kept lease on a shard, and eight keys for each call.
const KEYS: usize = 17;

const CONTENDERS: usize = 5;
