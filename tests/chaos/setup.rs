//! What a run is of.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// One Redis server
    Redis,
    /// A quorum of five Redis servers
    Quorum,
    /// A DynamoDB
    Dynamodb,
}

/// What is broken on purpose, so that the judge has something to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// Workers take no notice of a loss, and no gate looks at tokens
    Heedless,
    /// Each worker has a server to itself
    Apart,
}

impl Store {
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Redis | Self::Dynamodb => 1,
            Self::Quorum => 5,
        }
    }

    /// How long a server that was started does not take part.
    pub(crate) fn quarantine(self, ttl: Duration) -> Duration {
        match self {
            Self::Redis | Self::Dynamodb => Duration::ZERO,
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
        })
    }
}
