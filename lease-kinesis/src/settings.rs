//! The settings that all tasks of a worker share.

use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_core::store::LeaseTable;

use crate::names::Application;
use crate::position::InitialPosition;
use crate::source::reader::{Pace, Retrieval};

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
    /// The worker checkpoints between two batches, if the last checkpoint is older than this interval. The
    /// worker also checkpoints before it releases the shard or hands it over.
    Every(Duration),
}

impl Settings {
    /// A third of the ttl, so that a worker lists each new lease before that lease can expire.
    pub(crate) fn tick(&self) -> Duration {
        self.options.ttl() / 3
    }

    /// A ttl is enough, because the next worker sees the reserved shard at its next tick.
    pub(crate) fn reserved(&self) -> Duration {
        self.options.ttl()
    }

    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first_backoff.saturating_mul(1 << doublings).min(self.last_backoff)
    }
}

impl Checkpoints {
    /// `since` is the time since the last checkpoint.
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
