//! The settings that all tasks of a worker share.

use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_core::store::LeaseTable;

use crate::names::Application;
use crate::position::InitialPosition;
use crate::source::reader::{Pace, Retrieval};

/// The settings of a worker.
pub(crate) struct Settings {
    pub(crate) application: Application,
    pub(crate) table: Arc<dyn LeaseTable>,
    pub(crate) options: LeaseOptions,
    pub(crate) initial: InitialPosition,
    pub(crate) retrieval: Retrieval,
    pub(crate) pace: Pace,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) empty_batches: bool,
    pub(crate) batch_limit: Option<Duration>,
    pub(crate) restarts: Option<u32>,
    /// The maximum number of consecutive failures of one batch.
    pub(crate) failures: Option<u32>,
    pub(crate) first_backoff: Duration,
    pub(crate) last_backoff: Duration,
    pub(crate) grace: Duration,
    /// The time between two listings while some new workers do not count for the plan yet.
    pub(crate) settling: Duration,
    pub(crate) most_hand_overs: Option<usize>,
    pub(crate) sync_interval: Duration,
    /// Returns the time in milliseconds since 1970.
    pub(crate) wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Selects who decides when to checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "the processor decides or the worker does")]
pub enum Checkpoints {
    /// The processor decides, and calls its [`Checkpointer`](crate::Checkpointer).
    #[default]
    ByProcessor,
    /// The worker checkpoints between two batches, if the last checkpoint is older than this interval and
    /// further records were processed. It also checkpoints before it releases the shard or hands it over.
    Every(Duration),
}

impl Settings {
    /// Returns the time from one listing of the table to the next: a third of the ttl. So a worker
    /// lists each new lease before that lease can expire.
    pub(crate) fn tick(&self) -> Duration {
        self.options.ttl() / 3
    }

    /// Returns the time for which a handed-over shard is reserved for its next worker: a ttl. A crashed
    /// worker also delays its shards by a ttl. The next worker sees the shard at its next tick.
    pub(crate) fn reserved(&self) -> Duration {
        self.options.ttl()
    }

    /// Returns the pause after this number of consecutive failures. The pause doubles with each failure.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first_backoff.saturating_mul(1 << doublings).min(self.last_backoff)
    }
}

impl Checkpoints {
    /// Reports whether a checkpoint by the worker is due. `since` is the time since the last checkpoint.
    pub(crate) fn is_due(self, since: Duration) -> bool {
        match self {
            Self::ByProcessor => false,
            Self::Every(length) => since >= length,
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("application", &self.application).finish_non_exhaustive()
    }
}
