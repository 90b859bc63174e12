//! A worker, and what talks to it.

use std::fmt;
use std::sync::Arc;

use lease_core::{LeaseKey, Lessee, Locker, StoreError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

use crate::board::{Board, Status};
use crate::plan::Member;
use crate::processor::ProcessorError;
use crate::running::Running;
use crate::settings::Settings;
use crate::sync::ShardSync;

/// Reads its part of an application's shards, beside the application's other workers.
///
/// There is no leader. Every worker looks at the table at each tick (a third of the ttl), comes to
/// the same [plan](crate::plan), and does what is its own part of it: it obtains what is free and
/// planned for it, and hands over what it has and is planned for another, once the batch in hand is
/// done. Nobody takes what another holds.
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    pub(crate) settings: Arc<Settings>,
    pub(crate) sync: Arc<ShardSync>,
    pub(crate) locker: Locker,
    pub(crate) me: Member,
    pub(crate) own_key: LeaseKey,
    pub(crate) board: Board,
    pub(crate) stopping: CancellationToken,
    #[cfg(feature = "kcl")]
    pub(crate) beside: Option<crate::kcl::Beside>,
}

/// Talks to a worker that runs.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    board: Board,
    stopping: CancellationToken,
}

/// Why a worker ended without having been asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A processor wanted it to end.
    #[error("a processor stopped the worker")]
    Stopped(#[source] ProcessorError),
    /// The store refuses what a worker needs, and will until somebody mends that.
    #[error("worker could not begin")]
    Store(#[from] StoreError),
}

impl Worker {
    pub(crate) fn new(
        settings: Arc<Settings>,
        sync: ShardSync,
        locker: Locker,
        me: Member,
        own_key: LeaseKey,
    ) -> Self {
        let (board, stopping) = (Board::default(), CancellationToken::new());
        Self {
            settings,
            sync: Arc::new(sync),
            locker,
            me,
            own_key,
            board,
            stopping,
            #[cfg(feature = "kcl")]
            beside: None,
        }
    }

    /// What stops this worker, and asks how it gets on.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle { board: self.board.clone(), stopping: self.stopping.clone() }
    }

    /// Its name.
    pub fn name(&self) -> &Lessee {
        &self.me.name
    }

    /// Reads, until it is [stopped](WorkerHandle::stop).
    ///
    /// A shard, a processor or a stream that fails, is tried again, and ends nothing else. So is
    /// the store.
    ///
    /// # Errors
    ///
    /// Where a processor wanted the worker to end; and where the store refuses a worker's row, with
    /// what only people can mend.
    ///
    /// # Cancel safety
    ///
    /// What is dropped is read no more: its leases are released in the background, its checkpoints
    /// are those that were made.
    pub async fn run(self) -> Result<(), WorkerError> {
        let span =
            info_span!("worker", application = %self.settings.application, name = %self.me.name);
        Running::new(self).run().instrument(span).await
    }
}

impl WorkerHandle {
    /// Asks the worker to hand over all that it has, and to end: within its grace time.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// How it gets on.
    pub fn status(&self) -> Status {
        self.board.status()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.me.name).finish_non_exhaustive()
    }
}
