//! What a run is of.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use crate::Failure;
use crate::fault_kind::FaultKind;
use crate::probe::KEPT_TTL;

/// What a run is of.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) store: Store,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// How many keys there are, each of which guards a counter.
    pub(crate) counters: usize,
    pub(crate) ttl: Duration,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) faults: Faults,
    pub(crate) clocks: Clocks,
    /// The kinds of faults that are made one at a time.
    pub(crate) kinds: Vec<FaultKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// One Redis server
    Redis,
    /// A quorum of five Redis servers
    Quorum,
    /// A DynamoDB
    Dynamodb,
    /// A Redis master and two replicas behind three Sentinels
    Sentinel,
    /// A Redis Cluster of three masters with a replica each
    Cluster,
}

/// How faults follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Faults {
    /// Many at once, by chance: safety is judged
    Overlapping,
    /// One at a time: progress is judged, too
    Single,
}

/// What happens to the wall clocks of servers where faults are made one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clocks {
    /// They are left alone
    InStep,
    /// They step back and forward
    Step,
}

/// What is broken on purpose, so that the judge has something to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// Workers take no notice of a loss, and no gate looks at tokens
    Heedless,
    /// Each worker has a server to itself
    Apart,
    /// Probes know the first host of the URL list alone
    OneHost,
    /// A majority hangs where a minority should
    Majority,
}

impl Setup {
    /// Refuses what cannot be combined.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let single = self.faults == Faults::Single;
        let refused = match self.sabotage {
            Some(Sabotage::Apart) if self.store != Store::Redis || single => {
                "--sabotage apart is for --store redis: a server for each worker"
            }
            Some(Sabotage::OneHost) if !single => "--sabotage one-host is for single faults",
            Some(Sabotage::Majority) if self.store != Store::Quorum || !single => {
                "--sabotage majority is for --store quorum with single faults"
            }
            _ if single && self.store == Store::Dynamodb => {
                "--faults single is for the stores in Redis"
            }
            _ if !single && matches!(self.store, Store::Sentinel | Store::Cluster) => {
                "--faults overlapping is for redis, quorum and dynamodb"
            }
            _ if !single && self.clocks == Clocks::Step => {
                "--clocks step is for single faults: overlapping ones include clocks"
            }
            _ => return self.check_kinds(),
        };
        Err(refused.into())
    }

    fn check_kinds(&self) -> Result<(), Failure> {
        let all = FaultKind::all_of(self.store, Clocks::Step);
        match self.kinds.iter().find(|kind| !all.contains(kind)) {
            Some(kind) => Err(format!("{}: not on {}", kind.name(), self.store).into()),
            None => Ok(()),
        }
    }

    /// The longest ttl of all clients: those of a quorum have to agree on it.
    pub(crate) fn max_ttl(&self) -> Duration {
        match self.faults {
            Faults::Overlapping => self.ttl,
            Faults::Single => self.ttl.max(KEPT_TTL),
        }
    }
}

impl Store {
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Redis | Self::Dynamodb => 1,
            Self::Sentinel => 3,
            Self::Cluster => 6,
            Self::Quorum => 5,
        }
    }

    /// How long a server that was started does not take part.
    pub(crate) fn quarantine(self, ttl: Duration) -> Duration {
        match self {
            Self::Redis | Self::Dynamodb | Self::Sentinel | Self::Cluster => Duration::ZERO,
            // A ttl and 1 %; and two seconds, since Redis tells whole ones; and those told anew.
            Self::Quorum => ttl.mul_f64(1.01) + Duration::from_secs(3),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "one Redis server",
            Self::Quorum => "a quorum of five Redis servers",
            Self::Dynamodb => "DynamoDB",
            Self::Sentinel => "Redis behind Sentinels",
            Self::Cluster => "a Redis Cluster",
        })
    }
}
