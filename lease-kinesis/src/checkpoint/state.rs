//! The stored checkpoint and the requested checkpoint of one shard, under one lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::StoreErrorKind;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::{Instant, sleep_until};

use super::error::CheckpointError;
use crate::position::Position;
use crate::time::now;

/// The checkpoints of one shard under one lease, for all of its processors.
pub(crate) struct CheckpointState {
    /// A writer locks this during its whole write, so that writes do not overlap.
    progress: tokio::sync::Mutex<Progress>,
    /// Notified when a checkpoint is requested.
    requested: Notify,
    /// Returns the pause after a number of consecutive failed writes.
    pause: Box<dyn Fn(u32) -> Duration + Send + Sync>,
}

/// The stored checkpoint and the requested checkpoint.
pub(super) struct Progress {
    pub(super) written: Position,
    /// The largest requested position. Never smaller than `written`.
    pub(super) requested: Position,
    writer: Box<dyn CheckpointWriter>,
    failed: Option<Failed>,
}

/// Consecutive failed writes.
struct Failed {
    times: u32,
    kind: StoreErrorKind,
    next_try: Instant,
}

/// Writes the checkpoints of one shard: to its row, or through another process.
#[async_trait]
pub trait CheckpointWriter: Send + 'static {
    /// Stores `requested` or an earlier checkpoint, and sets `written` to what it stored. The caller repeats
    /// the call until `written` has reached `requested`.
    ///
    /// # Errors
    ///
    /// Fails if the checkpoint was not stored. The next call retries.
    ///
    /// # Cancel safety
    ///
    /// The write of a dropped call may or may not be applied. The next call gets the same `requested`,
    /// or a later position.
    async fn write(
        &mut self,
        written: &mut Position,
        requested: &Position,
    ) -> Result<(), CheckpointError>;
}

impl CheckpointState {
    /// Creates a state that writes through `writer`. `pause` returns the pause after a number of
    /// consecutive failures.
    pub(crate) fn new(
        writer: Box<dyn CheckpointWriter>,
        written: Position,
        pause: Box<dyn Fn(u32) -> Duration + Send + Sync>,
    ) -> Arc<Self> {
        let progress = Progress { requested: written.clone(), written, writer, failed: None };
        Arc::new(Self {
            progress: tokio::sync::Mutex::new(progress),
            requested: Notify::new(),
            pause,
        })
    }

    /// Returns the start position of the next processor: the last requested checkpoint. All records up to
    /// this checkpoint are processed. If the store does not have the checkpoint yet, the worker retries the
    /// write.
    pub(crate) async fn start_position(&self) -> Position {
        self.progress.lock().await.requested.clone()
    }

    pub(super) async fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().await
    }

    /// Writes the requested checkpoint. Fails if `is_over` reports that the processor has ended.
    ///
    /// # Cancel safety
    ///
    /// If the call is dropped, the write may or may not be applied. [`settle`](Self::settle) repeats it.
    pub(super) async fn write(
        &self,
        progress: &mut Progress,
        is_over: impl Fn() -> bool + Send,
    ) -> Result<(), CheckpointError> {
        while progress.is_pending() {
            // This check precedes each request, because the processor may have ended during the last request.
            if is_over() {
                return Err(CheckpointError::Over);
            }
            // Notifies `settle` before the write, because the caller may drop this call during the write.
            self.requested.notify_one();
            if let Err(cause) =
                progress.writer.write(&mut progress.written, &progress.requested).await
            {
                if let CheckpointError::Store(cause) = &cause {
                    let times = progress.failed.as_ref().map_or(1, |failed| failed.times + 1);
                    let next_try = now() + (self.pause)(times);
                    progress.failed = Some(Failed { times, kind: cause.kind(), next_try });
                }
                return Err(cause);
            }
        }
        progress.failed = None;
        Ok(())
    }

    /// While the caller polls this future, retries pending checkpoints until the store answers again.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next write reads the stored checkpoint.
    pub(super) async fn settle(&self, is_over: impl Fn() -> bool + Send + Sync) -> Infallible {
        loop {
            let next_try = {
                let progress = self.lock().await;
                let next_try = progress.failed.as_ref().map_or_else(now, |failed| failed.next_try);
                progress.is_pending().then_some(next_try)
            };
            let Some(next_try) = next_try else {
                self.requested.notified().await;
                continue;
            };
            sleep_until(next_try).await;
            let mut progress = self.lock().await;
            // During the sleep, another write may have failed and started a new pause.
            if progress.paused_by().is_none()
                && let Err(CheckpointError::Lost(_) | CheckpointError::Over) =
                    self.write(&mut progress, &is_over).await
            {
                // After the lease or the processor has ended, no checkpoint can be written.
                drop(progress);
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Progress {
    fn is_pending(&self) -> bool {
        self.written < self.requested
    }

    /// Returns the kind of the last failure, or `None` if the next try is due.
    pub(super) fn paused_by(&self) -> Option<StoreErrorKind> {
        let failed =
            self.failed.as_ref().filter(|failed| self.is_pending() && now() < failed.next_try);
        failed.map(|failed| failed.kind)
    }
}

/// The maximum pause between two tries. It is short, because a crash with a pending checkpoint repeats
/// records. After the store's recovery, the checkpoint is written within this time.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
