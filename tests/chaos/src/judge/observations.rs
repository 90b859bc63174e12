//! What was seen of progress during a run: by the judge's own connections, and by probes.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault_kind::FaultKind;
use crate::probe_event::{Call, ProbeEvent};
use crate::stamp::Stamp;

/// Everything that progress is judged by.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    pub(crate) shards: Vec<ShardLog>,
    pub(crate) probes: Vec<ProbeLog>,
    pub(crate) episodes: Vec<Episode>,
}

/// What the judge's plain connection saw of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardLog {
    /// When the master answered a write.
    pub(crate) beats: Vec<Stamp>,
    /// When a master answered that is another than before, or the first time after an outage.
    pub(crate) reached: Vec<Stamp>,
    /// When another server than before was the master.
    pub(crate) promoted: Vec<Stamp>,
}

/// What one probe process reported.
#[derive(Debug, Default)]
pub(crate) struct ProbeLog {
    /// It was started during a fault.
    pub(crate) is_newcomer: bool,
    /// Its tasks contend for one key, and make no other calls.
    pub(crate) contends: bool,
    pub(crate) ticks: Vec<Stamp>,
    pub(crate) grants: BTreeMap<(usize, Call), Vec<Stamp>>,
    pub(crate) failures: Vec<CallFailure>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) kept: Vec<(usize, Stamp)>,
}

/// A call that failed.
#[derive(Debug, Clone)]
pub(crate) struct CallFailure {
    pub(crate) shard: usize,
    pub(crate) call: Call,
    pub(crate) at: Stamp,
    pub(crate) why: String,
}

/// The loss of a lease that should be kept.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) shard: usize,
    pub(crate) at: Stamp,
    pub(crate) why: String,
}

/// One fault, from its start until everything was as before.
#[derive(Debug, Clone)]
pub(crate) struct Episode {
    pub(crate) fault: FaultKind,
    pub(crate) to: String,
    pub(crate) from: Stamp,
    pub(crate) settled: Stamp,
    /// The shards whose master was hurt: they may lose leases.
    pub(crate) hit: BTreeSet<usize>,
    /// Between which moments the memory of which shard was full.
    pub(crate) full: Option<(usize, Stamp, Stamp)>,
    pub(crate) slices: Vec<Slice>,
}

/// A time during which a minority hung, or none did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) hung: bool,
    pub(crate) from: Stamp,
    pub(crate) until: Stamp,
}

impl Observations {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| ShardLog::default()).collect();
        Self { shards, ..Self::default() }
    }

    /// The faults that lasted, or were being recovered from, between two moments.
    pub(crate) fn episodes_during(
        &self,
        from: Stamp,
        until: Stamp,
    ) -> impl Iterator<Item = &Episode> {
        let lasted = move |one: &&Episode| from <= one.settled && one.from <= until;
        self.episodes.iter().filter(lasted)
    }

    /// The same, as a clause.
    pub(crate) fn during(&self, from: Stamp, until: Stamp) -> String {
        let name = |episode: &Episode| format!("{} ({})", episode.fault.name(), episode.to);
        let names: Vec<_> = self.episodes_during(from, until).map(name).collect();
        if names.is_empty() { String::new() } else { format!("; during: {}", names.join(", ")) }
    }

    /// When the memory of a shard was full.
    pub(crate) fn full_memory(&self, shard: usize) -> impl Iterator<Item = (usize, Stamp, Stamp)> {
        let full = self.episodes.iter().filter_map(|episode| episode.full);
        full.filter(move |(full, ..)| *full == shard)
    }
}

impl ProbeLog {
    /// The grants of a call on a shard.
    pub(crate) fn granted(&self, shard: usize, call: Call) -> &[Stamp] {
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
