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

pub(crate) struct CheckpointState {
    /// A writer locks this mutex during its whole write, so that writes do not overlap.
    progress: tokio::sync::Mutex<Progress>,
    requested: Notify,
    /// Returns the pause after a number of consecutive failed writes.
    pause: Box<dyn Fn(u32) -> Duration + Send + Sync>,
}

pub(super) struct Progress {
    pub(super) written: Position,
    /// This position is never smaller than `written`.
    pub(super) requested: Position,
    writer: Box<dyn CheckpointWriter>,
    failed: Option<Failed>,
}

struct Failed {
    times: u32,
    kind: StoreErrorKind,
    next_try: Instant,
}

/// Writes the checkpoints of one shard: to its row, or through another process.
#[async_trait]
pub trait CheckpointWriter: Send + 'static {
    /// Stores `requested` or an earlier checkpoint, and sets `written` to the stored checkpoint. The caller
    /// repeats the call until `written` has reached `requested`.
    ///
    /// # Errors
    ///
    /// Fails if the checkpoint was not stored.
    ///
    /// # Cancel safety
    ///
    /// The store may or may not apply the write of a dropped call.
    async fn write(
        &mut self,
        written: &mut Position,
        requested: &Position,
    ) -> Result<(), CheckpointError>;
}

impl CheckpointState {
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

    /// The next processor starts at this position.
    pub(crate) async fn start_position(&self) -> Position {
        self.progress.lock().await.requested.clone()
    }

    pub(super) async fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().await
    }

    /// Fails if `is_over` reports that the processor has ended. If the caller drops the call, `settle`
    /// repeats the write.
    pub(super) async fn write(
        &self,
        progress: &mut Progress,
        is_over: impl Fn() -> bool + Send,
    ) -> Result<(), CheckpointError> {
        while progress.is_pending() {
            // The processor may have ended during the last request.
            if is_over() {
                return Err(CheckpointError::Over);
            }
            // `settle` must know of this write even if the caller drops the call.
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

    /// Retries pending checkpoints while the caller polls this future.
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

/// The maximum pause between two tries. Short, because a crash with a pending checkpoint repeats records.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
