//! How a worker is set up: what its tasks share.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{LeaseOptions, LeaseTable};

use crate::names::Application;
use crate::position::InitialPosition;
use crate::processor::ProcessorFactory;
use crate::reader::{Pace, Retrieval};

/// What every task of a worker goes by.
pub(crate) struct Settings {
    pub(crate) application: Application,
    pub(crate) table: Arc<dyn LeaseTable>,
    pub(crate) factory: Arc<dyn ProcessorFactory>,
    pub(crate) options: LeaseOptions,
    pub(crate) initial: InitialPosition,
    pub(crate) retrieval: Retrieval,
    pub(crate) pace: Pace,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) empty_batches: bool,
    pub(crate) batch_limit: Option<Duration>,
    pub(crate) restarts: Option<u32>,
    /// Of one batch, in a row.
    pub(crate) failures: Option<u32>,
    pub(crate) first_backoff: Duration,
    pub(crate) last_backoff: Duration,
    pub(crate) grace: Duration,
    /// From one look to the next of a worker that does not count yet.
    pub(crate) settling: Duration,
    pub(crate) most_hand_overs: Option<usize>,
    pub(crate) sync_interval: Duration,
    /// Milliseconds since 1970.
    pub(crate) wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Who decides when a checkpoint is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "the processor decides or the worker does")]
pub enum Checkpoints {
    /// The processor, which calls its [`Checkpointer`](crate::Checkpointer).
    #[default]
    ByProcessor,
    /// The worker: between two batches, once the last checkpoint is older than this and more was
    /// processed since; and before the shard is given up.
    Every(Duration),
}

impl Settings {
    /// From one look at the table to the next: a third of the ttl, so that a change is seen before
    /// a lease could run out that was obtained at the last look.
    pub(crate) fn tick(&self) -> Duration {
        self.options.ttl() / 3
    }

    /// For how long a shard that was handed over is kept for its next worker, which sees it at its
    /// next tick: a ttl, as for a worker that died.
    pub(crate) fn reserved(&self) -> Duration {
        self.options.ttl()
    }

    /// The pause after so many failures in a row: doubled each time.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first_backoff.saturating_mul(1 << doublings).min(self.last_backoff)
    }
}

impl Checkpoints {
    /// Whether the worker makes one, this long after the last.
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
