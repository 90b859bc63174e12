//! The settings, connections and state that a worker's loop and its tasks use.

use std::sync::Arc;

use lease_core::{LeaseKey, Locker};
use tokio_util::sync::CancellationToken;

use crate::plan::Member;
use crate::processor::ProcessorFactory;
use crate::settings::Settings;
use crate::status::StatusRegistry;
use crate::table::sync::ShardSync;

/// How a worker learns of changes, and how it holds its shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The worker lists all rows at each tick. Each shard has a lease with heartbeats.
    Lists,
    /// The worker reads what has changed. All shards are under its session.
    Session,
}

pub(crate) struct WorkerParts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) factory: Arc<dyn ProcessorFactory>,
    pub(crate) sync: Arc<ShardSync>,
    /// Obtains shards, in the second mode under the worker's session.
    pub(crate) locker: Locker,
    /// Obtains the worker's own row.
    pub(crate) row_locker: Locker,
    pub(crate) mode: Mode,
    pub(crate) me: Member,
    pub(crate) own_key: LeaseKey,
    pub(crate) status: StatusRegistry,
    /// A stop request cancels this token.
    pub(crate) stopping: CancellationToken,
}
