//! Observations of progress, by the judge's own connections and by the probes.

use std::collections::{BTreeMap, BTreeSet};

use crate::faults::single_fault::SingleFault;
use crate::monotonic::Monotonic;
use crate::probe::event::{Call, ProbeEvent};

#[derive(Debug, Default)]
pub(crate) struct Observations {
    pub(crate) shards: Vec<ShardLog>,
    pub(crate) probes: Vec<ProbeLog>,
    pub(crate) episodes: Vec<Episode>,
}

#[derive(Debug, Default)]
pub(crate) struct ShardLog {
    /// The times at which the master acknowledged a write.
    pub(crate) beats: Vec<Monotonic>,
    /// The times of the first reply of a new master, or of the same master after an outage.
    pub(crate) reached: Vec<Monotonic>,
    /// The times at which another server became the master.
    pub(crate) promoted: Vec<Monotonic>,
}

#[derive(Debug, Default)]
pub(crate) struct ProbeLog {
    pub(crate) is_newcomer: bool,
    pub(crate) contends: bool,
    pub(crate) ticks: Vec<Monotonic>,
    pub(crate) grants: BTreeMap<(usize, Call), Vec<Monotonic>>,
    pub(crate) failures: Vec<CallFailure>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) kept: Vec<(usize, Monotonic)>,
}

#[derive(Debug, Clone)]
pub(crate) struct CallFailure {
    pub(crate) shard: usize,
    pub(crate) call: Call,
    pub(crate) at: Monotonic,
    pub(crate) why: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) shard: usize,
    pub(crate) at: Monotonic,
    pub(crate) why: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Episode {
    pub(crate) fault: SingleFault,
    pub(crate) to: String,
    pub(crate) from: Monotonic,
    pub(crate) settled: Monotonic,
    /// The shards whose master the fault affects. Leases on these shards may be lost.
    pub(crate) hit: BTreeSet<usize>,
    /// The shard whose memory was full, with the start and the end of that time.
    pub(crate) full: Option<(usize, Monotonic, Monotonic)>,
    pub(crate) slices: Vec<Slice>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) hung: bool,
    pub(crate) from: Monotonic,
    pub(crate) until: Monotonic,
}

impl Observations {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| ShardLog::default()).collect();
        Self { shards, ..Self::default() }
    }

    /// A fault includes its recovery.
    pub(crate) fn episodes_during(
        &self,
        from: Monotonic,
        until: Monotonic,
    ) -> impl Iterator<Item = &Episode> {
        let lasted = move |one: &&Episode| from <= one.settled && one.from <= until;
        self.episodes.iter().filter(lasted)
    }

    pub(crate) fn during(&self, from: Monotonic, until: Monotonic) -> String {
        let name = |episode: &Episode| format!("{} ({})", episode.fault.name(), episode.to);
        let names: Vec<_> = self.episodes_during(from, until).map(name).collect();
        if names.is_empty() { String::new() } else { format!("; during: {}", names.join(", ")) }
    }

    pub(crate) fn full_memory(
        &self,
        shard: usize,
    ) -> impl Iterator<Item = (usize, Monotonic, Monotonic)> {
        let full = self.episodes.iter().filter_map(|episode| episode.full);
        full.filter(move |(full, ..)| *full == shard)
    }
}

impl ProbeLog {
    pub(crate) fn granted(&self, shard: usize, call: Call) -> &[Monotonic] {
        self.grants.get(&(shard, call)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, event: ProbeEvent) {
        match event {
            ProbeEvent::Tick { at } => self.ticks.push(at),
            ProbeEvent::Granted { shard, call, at } => {
                self.grants.entry((shard, call)).or_default().push(at);
            }
            ProbeEvent::Failed { shard, call, at, why } => {
                self.failures.push(CallFailure { shard, call, at, why });
            }
            ProbeEvent::Kept { shard, at } => self.kept.push((shard, at)),
            ProbeEvent::Lost { shard, at, why } => self.losses.push(Loss { shard, at, why }),
        }
    }
}
