//! What may go wrong, and how often.

use crate::setup::Store;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Worker(OfWorker),
    Link(OfLink),
    Server(OfServer),
    /// They step, by more than a ttl.
    ClocksForward,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfWorker {
    Killed,
    Stopped,
    /// The wall clock's, by up to an hour.
    ClockStepped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfLink {
    Cut,
    SlowRequests,
    SlowReplies,
    RequestsHeld,
    RepliesHeld,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfServer {
    Stopped,
    /// And started again with what is on its disk, which is all that it answered.
    Killed,
    ConnectionsKilled,
    ScriptsFlushed,
    ClockBack,
    /// A DynamoDB's, whose dates may be off by less than the margin of two seconds.
    ClockWithinMargin,
    RestartedEmpty,
    Flushed,
}

/// What may go wrong with `store`, each with its weight.
///
/// What admits two holders is rare, so that the windows in which nothing can be proven are a
/// small part of the time.
pub(crate) fn troubles_of(store: Store) -> &'static [(u32, Trouble)] {
    match store {
        Store::Redis => &REDIS,
        Store::Quorum => &QUORUM,
        Store::Dynamodb => &DYNAMODB,
        // Their faults are made one at a time.
        Store::Sentinel | Store::Cluster => &[],
    }
}

const REDIS: [(u32, Trouble); 16] = [
    (14, Trouble::Worker(OfWorker::Killed)),
    (14, Trouble::Worker(OfWorker::Stopped)),
    (8, Trouble::Worker(OfWorker::ClockStepped)),
    (8, Trouble::Link(OfLink::Cut)),
    (4, Trouble::Link(OfLink::SlowRequests)),
    (4, Trouble::Link(OfLink::SlowReplies)),
    (8, Trouble::Link(OfLink::RequestsHeld)),
    (8, Trouble::Link(OfLink::RepliesHeld)),
    (4, Trouble::Server(OfServer::Stopped)),
    (4, Trouble::Server(OfServer::Killed)),
    (6, Trouble::Server(OfServer::ConnectionsKilled)),
    (5, Trouble::Server(OfServer::ScriptsFlushed)),
    (2, Trouble::Server(OfServer::ClockBack)),
    (2, Trouble::Server(OfServer::RestartedEmpty)),
    (2, Trouble::Server(OfServer::Flushed)),
    (2, Trouble::ClocksForward),
];

const QUORUM: [(u32, Trouble); 16] = [
    (12, Trouble::Worker(OfWorker::Killed)),
    (12, Trouble::Worker(OfWorker::Stopped)),
    (8, Trouble::Worker(OfWorker::ClockStepped)),
    (10, Trouble::Link(OfLink::Cut)),
    (5, Trouble::Link(OfLink::SlowRequests)),
    (5, Trouble::Link(OfLink::SlowReplies)),
    (10, Trouble::Link(OfLink::RequestsHeld)),
    (10, Trouble::Link(OfLink::RepliesHeld)),
    (8, Trouble::Server(OfServer::Stopped)),
    (5, Trouble::Server(OfServer::Killed)),
    (6, Trouble::Server(OfServer::ConnectionsKilled)),
    (5, Trouble::Server(OfServer::ScriptsFlushed)),
    (2, Trouble::Server(OfServer::ClockBack)),
    (5, Trouble::Server(OfServer::RestartedEmpty)),
    (1, Trouble::Server(OfServer::Flushed)),
    (1, Trouble::ClocksForward),
];

const DYNAMODB: [(u32, Trouble); 11] = [
    (14, Trouble::Worker(OfWorker::Killed)),
    (14, Trouble::Worker(OfWorker::Stopped)),
    (10, Trouble::Worker(OfWorker::ClockStepped)),
    (8, Trouble::Link(OfLink::Cut)),
    (4, Trouble::Link(OfLink::SlowRequests)),
    (4, Trouble::Link(OfLink::SlowReplies)),
    (8, Trouble::Link(OfLink::RequestsHeld)),
    (8, Trouble::Link(OfLink::RepliesHeld)),
    (5, Trouble::Server(OfServer::Stopped)),
    (4, Trouble::Server(OfServer::Killed)),
    (4, Trouble::Server(OfServer::ClockWithinMargin)),
];
