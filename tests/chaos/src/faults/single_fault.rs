//! The faults of runs with one fault at a time, whose progress the judge can judge during each
//! fault.

use clap::ValueEnum;

use crate::store::{Clocks, Store};

/// A fault during which the store must make progress: a majority of the deciding hosts stays alive, or the
/// fault ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum SingleFault {
    /// The first host of the URL list hangs, and all connections to other hosts are killed
    HangFirst,
    /// A Sentinel hangs
    HangSentinel,
    /// A Sentinel is killed
    KillSentinel,
    /// A replica hangs
    HangReplica,
    /// A replica is killed
    KillReplica,
    /// A master hangs
    HangMaster,
    /// A master is killed
    KillMaster,
    /// An operator promotes a replica
    Failover,
    /// A slot moves to another shard, key by key, and back
    MigrateSlot,
    /// All connections are killed, three times
    KillConnections,
    /// `maxmemory` is reached
    FillMemory,
    /// A minority of a quorum hangs
    HangMinority,
    /// A server's wall clock steps forward
    ClockForward,
    /// A server's wall clock steps back
    ClockBack,
}

impl SingleFault {
    pub(crate) fn all_of(store: Store, clocks: Clocks) -> Vec<Self> {
        let mut kinds = match store {
            Store::Redis => {
                vec![Self::HangMaster, Self::KillMaster, Self::KillConnections, Self::FillMemory]
            }
            Store::Quorum => vec![Self::HangMinority, Self::KillConnections, Self::FillMemory],
            Store::Sentinel => vec![
                Self::HangFirst,
                Self::KillMaster,
                Self::FillMemory,
                Self::HangMaster,
                Self::HangSentinel,
                Self::Failover,
                Self::KillSentinel,
                Self::HangReplica,
                Self::KillReplica,
                Self::KillConnections,
            ],
            Store::Cluster => vec![
                Self::HangFirst,
                Self::MigrateSlot,
                Self::KillMaster,
                Self::FillMemory,
                Self::HangMaster,
                Self::Failover,
                Self::HangReplica,
                Self::KillReplica,
                Self::KillConnections,
            ],
            Store::Dynamodb | Store::Postgres | Store::Etcd | Store::Sqlite => Vec::new(),
        };
        if clocks == Clocks::Step && !kinds.is_empty() {
            kinds.extend([Self::ClockForward, Self::ClockBack]);
        }
        kinds
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HangFirst => "first host of the URL list hung, connections killed",
            Self::HangSentinel => "Sentinel hung",
            Self::KillSentinel => "Sentinel killed",
            Self::HangReplica => "replica hung",
            Self::KillReplica => "replica killed",
            Self::HangMaster => "master hung",
            Self::KillMaster => "master killed",
            Self::Failover => "failover by an operator",
            Self::MigrateSlot => "slot moved under load, and back",
            Self::KillConnections => "connections killed",
            Self::FillMemory => "maxmemory reached",
            Self::HangMinority => "minority of the quorum hung",
            Self::ClockForward => "server's clock stepped forward",
            Self::ClockBack => "server's clock stepped back",
        }
    }
}
