//! How far a shard has been read under one lease: what the store has, and what the worker owes it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{Grant, StoreErrorKind};
use tokio::sync::{MutexGuard, Notify};
use tokio::time::{Instant, sleep_until};

use super::on_row::OnRow;
use super::{CheckpointError, Checkpointer, Reach, Shared, Term};
use crate::board::Entry;
use crate::position::Position;
use crate::row::ShardRow;
use crate::settings::Settings;
use crate::time::now;

/// The checkpoints of one shard under one lease, over all of its processors.
pub(crate) struct Ledger {
    /// Locked during a write: one checkpoint follows another.
    kept: tokio::sync::Mutex<Kept>,
    /// Notified when a checkpoint is asked for.
    asked: Notify,
    /// The pause after so many failed writes in a row.
    pause: Box<dyn Fn(u32) -> Duration + Send + Sync>,
}

/// What the store has, and what it should have.
pub(super) struct Kept {
    pub(super) written: Position,
    /// The largest position that was asked for. Never smaller than `written`.
    pub(super) asked: Position,
    keeper: Box<dyn Keeper>,
    failed: Option<Failed>,
}

/// Writes that failed, in a row.
struct Failed {
    times: u32,
    kind: StoreErrorKind,
    next_try: Instant,
}

/// Where checkpoints are written.
#[async_trait]
pub(crate) trait Keeper: Send {
    /// Moves `written` towards `asked`, and sets it to what the store has then. Called until
    /// `written` has reached `asked`.
    async fn keep(
        &mut self,
        written: &mut Position,
        asked: &Position,
    ) -> Result<(), CheckpointError>;
}

impl Ledger {
    /// Writes to the shard's row, under `grant`.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        grant: Grant,
        row: &ShardRow,
        entry: Entry,
    ) -> Arc<Self> {
        let keeper = OnRow::new(settings, grant, row, entry);
        let settings = Arc::clone(settings);
        let pause = move |failures| settings.backoff(failures).min(LONGEST_PAUSE);
        Self::with(Box::new(keeper), row.checkpoint.clone(), Box::new(pause))
    }

    /// Writes to `keeper`, which has its own pauses.
    pub(crate) fn kept_by(keeper: Box<dyn Keeper>, written: Position) -> Arc<Self> {
        Self::with(keeper, written, Box::new(|_failures| Duration::ZERO))
    }

    fn with(
        keeper: Box<dyn Keeper>,
        written: Position,
        pause: Box<dyn Fn(u32) -> Duration + Send + Sync>,
    ) -> Arc<Self> {
        let kept = Kept { asked: written.clone(), written, keeper, failed: None };
        Arc::new(Self { kept: tokio::sync::Mutex::new(kept), asked: Notify::new(), pause })
    }

    /// Where the next processor begins: after the last checkpoint that was asked for. The store may
    /// not have it yet. The processor before has finished all records up to it, and the worker still
    /// owes it.
    pub(crate) async fn begin(&self) -> Position {
        self.kept.lock().await.asked.clone()
    }

    /// The checkpointer of a processor that begins.
    pub(crate) fn term(self: &Arc<Self>) -> Term {
        let (ledger, reach) = (Arc::clone(self), Mutex::new(Reach::Nothing));
        Term(Checkpointer { shared: Arc::new(Shared { ledger, reach }) })
    }

    pub(super) async fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().await
    }
}

impl Kept {
    fn owes(&self) -> bool {
        self.written < self.asked
    }

    /// The kind of the last failure, until the next try is due.
    pub(super) fn paused_by(&self) -> Option<StoreErrorKind> {
        let failed = self.failed.as_ref().filter(|failed| self.owes() && now() < failed.next_try);
        failed.map(|failed| failed.kind)
    }
}

impl Shared {
    /// Writes what is asked for.
    ///
    /// # Cancel safety
    ///
    /// The write may or may not be applied. [`settle`](Checkpointer::settle) repeats it.
    pub(super) async fn write(&self, kept: &mut Kept) -> Result<(), CheckpointError> {
        while kept.owes() {
            // Before each request: the processor may have ended meanwhile.
            if matches!(*self.reach(), Reach::Over) {
                return Err(CheckpointError::Over);
            }
            // Before the write: its caller may be dropped during it.
            self.ledger.asked.notify_one();
            if let Err(cause) = kept.keeper.keep(&mut kept.written, &kept.asked).await {
                if let CheckpointError::Store(cause) = &cause {
                    let times = kept.failed.as_ref().map_or(1, |failed| failed.times + 1);
                    let next_try = now() + (self.ledger.pause)(times);
                    kept.failed = Some(Failed { times, kind: cause.kind(), next_try });
                }
                return Err(cause);
            }
        }
        kept.failed = None;
        Ok(())
    }
}

impl Checkpointer {
    /// Writes owed checkpoints once the store answers again, for as long as it is polled.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next write sees what the store has.
    pub(crate) async fn settle(&self) -> Infallible {
        let Shared { ledger, .. } = &*self.shared;
        loop {
            let next_try = {
                let kept = ledger.lock().await;
                let next_try = kept.failed.as_ref().map_or_else(now, |failed| failed.next_try);
                kept.owes().then_some(next_try)
            };
            let Some(next_try) = next_try else {
                ledger.asked.notified().await;
                continue;
            };
            sleep_until(next_try).await;
            let mut kept = ledger.lock().await;
            // Another write may have failed meanwhile.
            if kept.paused_by().is_none()
                && let Err(CheckpointError::Lost(_) | CheckpointError::Over) =
                    self.shared.write(&mut kept).await
            {
                // Nothing is owed under a lost lease.
                drop(kept);
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Between two tries of a write that failed. A checkpoint that is owed costs repeated records when
/// the process dies, so it is written within seconds of the store's recovery.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
