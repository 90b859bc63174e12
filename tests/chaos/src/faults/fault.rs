//! The overlapping faults, and their weights.

use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Worker(WorkerFault),
    Link(LinkFault),
    Server(ServerFault),
    /// The step is longer than a ttl.
    ClocksForward,
    /// Another program writes a list under the name of one of the load's leases.
    KeySpoiled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerFault {
    Killed,
    Stopped,
    ClockStepped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkFault {
    Cut,
    SlowRequests,
    SlowReplies,
    RequestsHeld,
    RepliesHeld,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerFault {
    Stopped,
    Killed,
    ConnectionsKilled,
    ScriptsFlushed,
    ClockBack,
    /// A step of less than the store's margin of two seconds.
    ClockWithinMargin,
    RestartedEmpty,
    Flushed,
    MemoryFull,
    /// A standby that lags takes the place of its primary.
    FailedOver,
    FileLocked,
}

/// Faults that admit two holders are rare, since the judge then excuses overlaps for some time.
pub(crate) fn faults_of(store: Store) -> &'static [(u32, Fault)] {
    match store {
        Store::Redis => &REDIS,
        Store::Quorum => &QUORUM,
        Store::Dynamodb => &DYNAMODB,
        Store::Postgres => &POSTGRES,
        Store::Etcd => &ETCD,
        Store::Sqlite => &SQLITE,
        // Runs on these stores inject only single faults.
        Store::Sentinel | Store::Cluster => &[],
    }
}

pub(crate) const OF_LOAD: [(u32, Fault); 2] =
    [(5, Fault::Server(ServerFault::MemoryFull)), (8, Fault::KeySpoiled)];

const REDIS: [(u32, Fault); 16] = [
    (14, Fault::Worker(WorkerFault::Killed)),
    (14, Fault::Worker(WorkerFault::Stopped)),
    (8, Fault::Worker(WorkerFault::ClockStepped)),
    (8, Fault::Link(LinkFault::Cut)),
    (4, Fault::Link(LinkFault::SlowRequests)),
    (4, Fault::Link(LinkFault::SlowReplies)),
    (8, Fault::Link(LinkFault::RequestsHeld)),
    (8, Fault::Link(LinkFault::RepliesHeld)),
    (4, Fault::Server(ServerFault::Stopped)),
    (4, Fault::Server(ServerFault::Killed)),
    (6, Fault::Server(ServerFault::ConnectionsKilled)),
    (5, Fault::Server(ServerFault::ScriptsFlushed)),
    (2, Fault::Server(ServerFault::ClockBack)),
    (2, Fault::Server(ServerFault::RestartedEmpty)),
    (2, Fault::Server(ServerFault::Flushed)),
    (2, Fault::ClocksForward),
];

const QUORUM: [(u32, Fault); 16] = [
    (12, Fault::Worker(WorkerFault::Killed)),
    (12, Fault::Worker(WorkerFault::Stopped)),
    (8, Fault::Worker(WorkerFault::ClockStepped)),
    (10, Fault::Link(LinkFault::Cut)),
    (5, Fault::Link(LinkFault::SlowRequests)),
    (5, Fault::Link(LinkFault::SlowReplies)),
    (10, Fault::Link(LinkFault::RequestsHeld)),
    (10, Fault::Link(LinkFault::RepliesHeld)),
    (8, Fault::Server(ServerFault::Stopped)),
    (5, Fault::Server(ServerFault::Killed)),
    (6, Fault::Server(ServerFault::ConnectionsKilled)),
    (5, Fault::Server(ServerFault::ScriptsFlushed)),
    (2, Fault::Server(ServerFault::ClockBack)),
    (5, Fault::Server(ServerFault::RestartedEmpty)),
    (1, Fault::Server(ServerFault::Flushed)),
    (1, Fault::ClocksForward),
];

const DYNAMODB: [(u32, Fault); 11] = [
    (14, Fault::Worker(WorkerFault::Killed)),
    (14, Fault::Worker(WorkerFault::Stopped)),
    (10, Fault::Worker(WorkerFault::ClockStepped)),
    (8, Fault::Link(LinkFault::Cut)),
    (4, Fault::Link(LinkFault::SlowRequests)),
    (4, Fault::Link(LinkFault::SlowReplies)),
    (8, Fault::Link(LinkFault::RequestsHeld)),
    (8, Fault::Link(LinkFault::RepliesHeld)),
    (5, Fault::Server(ServerFault::Stopped)),
    (4, Fault::Server(ServerFault::Killed)),
    (4, Fault::Server(ServerFault::ClockWithinMargin)),
];

const POSTGRES: [(u32, Fault); 12] = [
    (14, Fault::Worker(WorkerFault::Killed)),
    (14, Fault::Worker(WorkerFault::Stopped)),
    (8, Fault::Worker(WorkerFault::ClockStepped)),
    (8, Fault::Link(LinkFault::Cut)),
    (4, Fault::Link(LinkFault::SlowRequests)),
    (4, Fault::Link(LinkFault::SlowReplies)),
    (8, Fault::Link(LinkFault::RequestsHeld)),
    (8, Fault::Link(LinkFault::RepliesHeld)),
    (4, Fault::Server(ServerFault::Stopped)),
    (4, Fault::Server(ServerFault::Killed)),
    (6, Fault::Server(ServerFault::ConnectionsKilled)),
    (2, Fault::Server(ServerFault::FailedOver)),
];

const ETCD: [(u32, Fault); 10] = [
    (14, Fault::Worker(WorkerFault::Killed)),
    (14, Fault::Worker(WorkerFault::Stopped)),
    (8, Fault::Worker(WorkerFault::ClockStepped)),
    (10, Fault::Link(LinkFault::Cut)),
    (5, Fault::Link(LinkFault::SlowRequests)),
    (5, Fault::Link(LinkFault::SlowReplies)),
    (10, Fault::Link(LinkFault::RequestsHeld)),
    (10, Fault::Link(LinkFault::RepliesHeld)),
    (8, Fault::Server(ServerFault::Stopped)),
    (8, Fault::Server(ServerFault::Killed)),
];

const SQLITE: [(u32, Fault); 4] = [
    (30, Fault::Worker(WorkerFault::Killed)),
    (30, Fault::Worker(WorkerFault::Stopped)),
    (15, Fault::Worker(WorkerFault::ClockStepped)),
    (15, Fault::Server(ServerFault::FileLocked)),
];
