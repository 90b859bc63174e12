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

pub(crate) struct WorkerParts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) factory: Arc<dyn ProcessorFactory>,
    pub(crate) sync: Arc<ShardSync>,
    pub(crate) locker: Locker,
    pub(crate) me: Member,
    pub(crate) own_key: LeaseKey,
    pub(crate) status: StatusRegistry,
    /// A stop request cancels this token.
    pub(crate) stopping: CancellationToken,
    pub(crate) coexistence: Option<Box<dyn Coexistence>>,
}
