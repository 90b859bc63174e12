//! The parameters of a run.

use std::time::Duration;

use clap::ValueEnum;

use crate::failure::Failure;
use crate::faults::single_fault::SingleFault;
use crate::load::Load;
use crate::probe::KEPT_TTL;
use crate::store::{Clocks, Store};

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) store: Store,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) pause: Duration,
    /// The number of keys. Each key guards a counter.
    pub(crate) counters: usize,
    pub(crate) ttl: Duration,
    pub(crate) load: Option<Load>,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) faults: Faults,
    pub(crate) clocks: Clocks,
    pub(crate) kinds: Vec<SingleFault>,
}

/// Whether faults overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Faults {
    /// Random faults that overlap; the judge checks safety
    Overlapping,
    /// One fault at a time; the judge checks safety and progress
    Single,
}

/// A rule that the run breaks on purpose, so that the judge must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// Workers ignore a lost lease, and no gate checks tokens
    Heedless,
    /// Each worker has a separate server
    Apart,
    /// Probes know only the first host of the URL list
    OneHost,
    /// A majority hangs instead of a minority
    Majority,
    /// Waiters race, but report places in a queue
    Racing,
    /// The load's processes give the answer of one claim to another claim
    Swapped,
}

impl Setup {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let single = self.faults == Faults::Single;
        let refused = match self.sabotage {
            Some(Sabotage::Apart) if self.store != Store::Redis || single => {
                "--sabotage apart is for --store redis: a server for each worker"
            }
            Some(Sabotage::Racing) if self.store != Store::Redis || single => {
                "--sabotage racing is for --store redis with overlapping faults"
            }
            Some(Sabotage::OneHost) if !single => "--sabotage one-host is for single faults",
            Some(Sabotage::Majority) if self.store != Store::Quorum || !single => {
                "--sabotage majority is for --store quorum with single faults"
            }
            Some(Sabotage::Swapped) if self.load.is_none() => {
                "--sabotage swapped is for a run with --load"
            }
            _ if single && self.pause != FREQUENT => "--pause is for overlapping faults",
            _ if single && self.load.is_some() => "--load is for overlapping faults",
            _ if self.load.is_some()
                && matches!(self.store, Store::Postgres | Store::Etcd | Store::Sqlite) =>
            {
                "--load is for redis, quorum and dynamodb"
            }
            _ if single
                && matches!(
                    self.store,
                    Store::Dynamodb | Store::Postgres | Store::Etcd | Store::Sqlite
                ) =>
            {
                "--faults single is for the stores in Redis"
            }
            _ if !single && matches!(self.store, Store::Sentinel | Store::Cluster) => {
                "--faults overlapping is for redis, quorum, dynamodb, postgres, etcd and sqlite"
            }
            _ if !single && self.clocks == Clocks::Step => {
                "--clocks step is for single faults: overlapping ones include clocks"
            }
            _ => return self.check_kinds(),
        };
        Err(refused.into())
    }

    fn check_kinds(&self) -> Result<(), Failure> {
        let all = SingleFault::all_of(self.store, Clocks::Step);
        match self.kinds.iter().find(|kind| !all.contains(kind)) {
            Some(kind) => Err(format!("{}: not on {}", kind.name(), self.store).into()),
            None => Ok(()),
        }
    }

    pub(crate) fn processes(&self) -> usize {
        self.workers + self.load.map_or(0, Load::processes)
    }

    /// The clients of a quorum must agree on this ttl.
    pub(crate) fn max_ttl(&self) -> Duration {
        match self.faults {
            Faults::Overlapping => self.ttl,
            Faults::Single => self.ttl.max(KEPT_TTL),
        }
    }
}

pub(crate) const FREQUENT: Duration = Duration::from_secs(1);
