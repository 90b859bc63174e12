//! The settings, connections and state that a worker's loop and its tasks use.

use std::sync::Arc;

use lease_core::{LeaseKey, Locker};
use tokio_util::sync::CancellationToken;

use crate::plan::Member;
use crate::processor::ProcessorFactory;
use crate::settings::Settings;
use crate::status::StatusRegistry;
use crate::table::sync::ShardSync;
use crate::worker::coexistence::Coexistence;

/// The settings, connections and state of a worker.
pub(crate) struct WorkerParts {
    pub(crate) settings: Arc<Settings>,
    /// Makes a record processor for each shard.
    pub(crate) factory: Arc<dyn ProcessorFactory>,
    pub(crate) sync: Arc<ShardSync>,
    pub(crate) locker: Locker,
    /// The attributes of this worker that other workers read in its row.
    pub(crate) me: Member,
    /// The key of the worker's own row.
    pub(crate) own_key: LeaseKey,
    pub(crate) status: StatusRegistry,
    /// A stop request cancels this token.
    pub(crate) stopping: CancellationToken,
    pub(crate) coexistence: Option<Box<dyn Coexistence>>,
}
