//! The store of a run, and the setting of its servers' clocks.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

/// The store that keeps the leases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// One Redis server
    Redis,
    /// A quorum of five Redis servers
    Quorum,
    /// A DynamoDB
    Dynamodb,
    /// A PostgreSQL server with a standby, half of the workers behind PgBouncer
    Postgres,
    /// A cluster of three members of etcd
    Etcd,
    /// A file of SQLite
    Sqlite,
    /// A Redis master and two replicas behind three Sentinels
    Sentinel,
    /// A Redis Cluster of three masters with a replica each
    Cluster,
}

/// Whether single faults step the wall clocks of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clocks {
    /// Wall clocks are not changed
    InStep,
    /// Wall clocks step back and forward
    Step,
}

impl Store {
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Redis | Self::Dynamodb | Self::Postgres | Self::Sqlite => 1,
            Self::Sentinel | Self::Etcd => 3,
            Self::Cluster => 6,
            Self::Quorum => 5,
        }
    }

    pub(crate) fn quarantine(self, ttl: Duration) -> Duration {
        match self {
            // A ttl and 1 %, and 3 s: Redis reports its uptime in whole seconds, and a client needs
            // a second to read the uptime again.
            Self::Quorum => ttl.mul_f64(1.01) + Duration::from_secs(3),
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "one Redis server",
            Self::Quorum => "a quorum of five Redis servers",
            Self::Dynamodb => "DynamoDB",
            Self::Postgres => "PostgreSQL",
            Self::Etcd => "etcd",
            Self::Sqlite => "SQLite",
            Self::Sentinel => "Redis behind Sentinels",
            Self::Cluster => "a Redis Cluster",
        })
    }
}
