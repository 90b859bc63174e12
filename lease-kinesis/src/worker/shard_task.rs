//! Reads one shard and calls its processor, from the grant of the lease to the end of the lease.

mod delivery;
mod ending;
mod handing_over;

use std::collections::BTreeSet;
use std::error::Error;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::{Lease, Lessee, Locker, Reservation, Written};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, error, info_span, warn};

pub(crate) use self::handing_over::free;
use crate::checkpoint::{CheckpointScope, CheckpointState, Checkpointer, LONGEST_PAUSE, RowWriter};
use crate::position::Position;
use crate::processor::{ProcessorError, ProcessorFactory, RecordProcessor, ShardContext};
use crate::record::Batch;
use crate::settings::Settings;
use crate::shard::ShardId;
use crate::source::Source;
use crate::source::reader::{Read, Reader};
use crate::status::StatusEntry;
use crate::table::row::{self, ShardRow};
use crate::table::sync::ShardSync;

pub(crate) struct ShardTask {
    pub(crate) settings: Arc<Settings>,
    pub(crate) factory: Arc<dyn ProcessorFactory>,
    pub(crate) sync: Arc<ShardSync>,
    /// The worker's loop also has a weak reference, to check a lease under a session.
    pub(crate) lease: Arc<Lease>,
    pub(crate) locker: Locker,
    pub(crate) row: ShardRow,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) entry: StatusEntry,
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) out_of_time: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    Read,
    /// Hand the shard over to this worker. `None` means to release the shard.
    Give(Option<Lessee>),
}

#[derive(Debug)]
pub(crate) enum TaskEnd {
    Lost,
    /// The shard was handed over or released.
    Given,
    /// The shard was read to its end. Its children now have rows.
    ShardEnd {
        children: BTreeSet<ShardId>,
        lease: Arc<Lease>,
    },
    Missing,
    /// The shard was released for a while.
    GivenUp,
    StopWorker(ProcessorError),
}

enum Interrupted {
    Lost,
    OutOfTime,
    Ordered,
    /// The worker ordered a hand-over before the processor was initialized.
    NotStarted,
    /// The processor's state is unknown. Another processor starts at the checkpoint.
    Restart(ProcessorError),
    GiveUp(ProcessorError),
    StopWorker(ProcessorError),
}

impl ShardTask {
    pub(crate) async fn run(mut self) -> TaskEnd {
        self.row.switches = self.row.switches.saturating_add(1);
        let switched = row::switched(self.row.switches);
        let table = Arc::clone(&self.settings.table);
        let counted = self.lease.update(&*table, &switched);
        match self.guarded(None, counted).await {
            // The count only affects the backoff of a failing shard. The next holder removes a stale
            // `reservedFor`.
            Ok(counted) => drop(counted),
            Err(interrupted) => return self.end(interrupted).await,
        }
        if let Err(interrupted) = self.store_start_time().await {
            return self.end(interrupted).await;
        }
        if let Err(interrupted) = self.find_hash_keys().await {
            return self.end(interrupted).await;
        }
        let checkpoints = self.checkpoints();
        let mut position = self.row.checkpoint.clone();
        let mut restarts = 0;
        loop {
            let interrupted = self.run_processor(&checkpoints, position.clone()).await;
            let cause = match interrupted {
                Ok(ended) => return ended,
                Err(Interrupted::Restart(cause)) => cause,
                Err(interrupted) => return self.end(interrupted).await,
            };
            self.entry.restarted();
            // Guarded, because a clone of the old checkpointer may still lock the checkpoints.
            let reached = match self.guarded(None, checkpoints.start_position()).await {
                Ok(reached) => reached,
                Err(interrupted) => return self.end(interrupted).await,
            };
            if reached > position {
                restarts = 0;
            }
            position = reached;
            restarts += 1;
            if let Err(interrupted) = self.before_restart(&checkpoints, restarts, cause).await {
                return self.end(interrupted).await;
            }
        }
    }

    /// Uses the grant, because a [`CheckpointScope`] in another crate has no `Lease`.
    fn checkpoints(&self) -> Arc<CheckpointState> {
        let settings = Arc::clone(&self.settings);
        let (table, limit) = (Arc::clone(&settings.table), settings.options.request_timeout());
        let grant = self.lease.grant().clone();
        let writer = RowWriter::new(table, limit, grant, &self.row, self.entry.clone());
        let pause = move |failures| settings.backoff(failures).min(LONGEST_PAUSE);
        CheckpointState::new(Box::new(writer), self.row.checkpoint.clone(), Box::new(pause))
    }

    async fn before_restart(
        &mut self,
        checkpoints: &Arc<CheckpointState>,
        restarts: u32,
        cause: ProcessorError,
    ) -> Result<(), Interrupted> {
        let pause = self.settings.backoff(restarts);
        warn!(
            shard = %self.row.shard, restarts, ?pause, error = &*cause as &dyn Error,
            "processor failed, another one starts at the checkpoint"
        );
        let checkpointer = CheckpointScope::of(checkpoints);
        let paused = if self.settings.restarts.is_some_and(|most| restarts > most) {
            Err(Interrupted::GiveUp(cause))
        } else {
            select! {
                biased;
                // This branch is polled first, so that no pending checkpoint is written after an interruption.
                paused = self.pause(pause) => paused,
                never = checkpointer.settle() => match never {},
            }
        };
        match paused {
            Ok(()) => Ok(()),
            Err(interrupted) => Err(self.write_before(&checkpointer, interrupted).await),
        }
    }

    /// A restart at `LATEST`, which rows of the Kinesis Client Library have, would skip records.
    async fn store_start_time(&mut self) -> Result<(), Interrupted> {
        if self.row.checkpoint != Position::Latest {
            return Ok(());
        }
        let begun = Position::AtTimestamp((self.settings.wall_clock)());
        let change = row::checkpoint(&self.row.written, &begun);
        let table = Arc::clone(&self.settings.table);
        let mut failures = 0;
        loop {
            match self.guarded(None, self.lease.update(&*table, &change)).await? {
                Ok(Written::Applied) => break,
                // An earlier write was applied, and its answer was lost.
                Ok(Written::Unexpected) if failures > 0 => break,
                Ok(Written::Lost(_) | Written::Unexpected) => return Err(Interrupted::Lost),
                Err(cause) => {
                    failures += 1;
                    let shard = &self.row.shard;
                    warn!(%shard, error = &cause as &dyn Error, "start time not written, retrying");
                    self.pause(self.settings.backoff(failures)).await?;
                }
            }
        }
        self.row.written = row::checkpoint_attributes(&begun);
        self.row.checkpoint = begun;
        Ok(())
    }

    /// Some rows have no hash keys. The hash keys decide which records of an aggregate belong to the shard.
    async fn find_hash_keys(&mut self) -> Result<(), Interrupted> {
        if self.row.has_hash_keys {
            return Ok(());
        }
        let listed = timeout(self.settings.options.request_timeout(), self.source.shards());
        let shard = &self.row.shard;
        match self.guarded(None, listed).await? {
            Ok(Ok(listed)) => {
                if let Some(listed) = listed.into_iter().find(|listed| listed.id == *shard) {
                    self.row.hash_keys = listed.hash_keys;
                }
            }
            // Without the hash keys, the workers of two shards may both deliver the records of an aggregate.
            Ok(Err(cause)) => {
                warn!(%shard, error = &cause as &dyn Error, "hash keys of the shard not found");
            }
            Err(_elapsed) => warn!(%shard, "hash keys of the shard not found in time"),
        }
        Ok(())
    }

    async fn run_processor(
        &mut self,
        checkpoints: &Arc<CheckpointState>,
        position: Position,
    ) -> Result<TaskEnd, Interrupted> {
        // The next processor receives the same records, so this processor's own tasks must end.
        let cancellation = self.lease.cancelled_on_loss().child_token();
        let _cancels = cancellation.clone().drop_guard();
        let context = ShardContext {
            shard: self.row.shard.clone(),
            position,
            is_latest: self.row.is_latest,
            token: Some(self.lease.token()),
            cancellation,
        };
        let made = async { self.factory.processor(&context) };
        let mut processor = self.guarded(None, made).await?;
        // The scope is declared after the processor, so that the scope is dropped first.
        let checkpointer = CheckpointScope::of(checkpoints);
        let begun = select! {
            biased;
            // This branch is polled first, so that no pending checkpoint is written after an interruption.
            begun = self.begin(&mut *processor, &context, &checkpointer) => begun,
            never = checkpointer.settle() => match never {},
        };
        let ended = match begun {
            Err(Interrupted::Ordered) => self.shut_down(&mut *processor, &checkpointer).await,
            Err(Interrupted::NotStarted) => match self.write_last_checkpoint(&checkpointer).await {
                Ok(()) => self.hand_over(&checkpointer).await,
                Err(interrupted) => Err(interrupted),
            },
            // Without this last checkpoint, the next processor would receive processed records again.
            Err(interrupted @ (Interrupted::GiveUp(_) | Interrupted::StopWorker(_))) => {
                Err(self.write_before(&checkpointer, interrupted).await)
            }
            Err(interrupted @ (Interrupted::Lost | Interrupted::OutOfTime)) => {
                checkpointer.close();
                let notified = processor.lease_lost().instrument(self.span("lease_lost", 0));
                let notified = AssertUnwindSafe(notified).catch_unwind();
                // Another worker may hold the shard already, so this wait is limited.
                drop(timeout(self.settings.grace, notified).await);
                Err(interrupted)
            }
            ended => ended,
        };
        drop(checkpointer);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(processor)));
        if let Err(panic) = dropped {
            error!(
                shard = %self.row.shard, message = panic_message(&*panic),
                "processor panicked in its destructor"
            );
        }
        ended
    }

    async fn begin(
        &mut self,
        processor: &mut dyn RecordProcessor,
        context: &ShardContext,
        checkpointer: &Checkpointer,
    ) -> Result<TaskEnd, Interrupted> {
        let mut orders = self.orders.clone();
        let initialize = processor.initialize(context).instrument(self.span("initialize", 0));
        let initialized = select! {
            biased;
            // A processor that is not initialized needs no shutdown.
            () = ordered(&mut orders) => return Err(Interrupted::NotStarted),
            initialized = self.guarded(self.settings.batch_limit, initialize) => initialized?,
        };
        initialized.map_err(Interrupted::Restart)?;
        let settings = Arc::clone(&self.settings);
        let mut reader = Reader::new(
            Arc::clone(&self.source),
            self.row.shard.clone(),
            self.row.hash_keys,
            context.position.clone(),
            settings.retrieval,
            settings.pace,
        )
        .reporting_to(self.entry.clone());
        let mut orders = self.orders.clone();
        loop {
            let mut reading = pin!(reader.read());
            let read = loop {
                select! {
                    biased;
                    // This branch is polled first, so that nothing is read after a loss. Orders to stop come next.
                    _lost = self.lease.lost() => return Err(Interrupted::Lost),
                    () = self.out_of_time.cancelled() => return Err(Interrupted::OutOfTime),
                    () = ordered(&mut orders) => return Err(Interrupted::Ordered),
                    // Between batches, all delivered records are processed.
                    () = self.checkpoint_due(checkpointer) => {
                        self.checkpoint_if_due(checkpointer).await?;
                    }
                    read = &mut reading => break read,
                }
            };
            match read {
                Read::Records { records, behind } => {
                    self.entry.behind(behind);
                    if !records.is_empty() || settings.empty_batches {
                        let batch = Batch::new(records, behind);
                        self.work(processor, checkpointer, batch).await?;
                    }
                }
                Read::End { children } => {
                    return self.end_of_shard(processor, checkpointer, children).await;
                }
                Read::Gone => return Ok(TaskEnd::Missing),
            }
        }
    }

    async fn end(self, interrupted: Interrupted) -> TaskEnd {
        let shard = &self.row.shard;
        match interrupted {
            Interrupted::Lost => {
                warn!(%shard, token = %self.lease.token(), "lease lost");
                self.entry.lost();
                TaskEnd::Lost
            }
            Interrupted::OutOfTime => {
                warn!(%shard, "grace time exceeded, shard released");
                TaskEnd::Given
            }
            Interrupted::Ordered | Interrupted::NotStarted => TaskEnd::Given,
            Interrupted::Restart(cause) | Interrupted::GiveUp(cause) => {
                let rest = self.settings.backoff(self.row.switches.saturating_add(4));
                error!(%shard, ?rest, error = &*cause as &dyn Error, "shard given up for a while");
                // Without a check of the lease under way, this is the only reference.
                if let Some(lease) = Arc::into_inner(self.lease) {
                    drop(lease.release_reserved(Reservation::clamped(rest)).await);
                }
                TaskEnd::GivenUp
            }
            Interrupted::StopWorker(cause) => TaskEnd::StopWorker(cause),
        }
    }

    /// The span of one call of the processor. `attempt` counts earlier calls for the same records, or the same end.
    fn span(&self, call: &'static str, attempt: u32) -> Span {
        let (grant, shard) = (self.lease.grant(), &self.row.shard);
        info_span!(
            "record_processor", call, attempt, %shard, key = %grant.key, lessee = %grant.lessee,
            token = grant.token.get()
        )
    }

    async fn guarded<F: Future>(
        &self,
        limit: Option<Duration>,
        work: F,
    ) -> Result<F::Output, Interrupted> {
        let work = AssertUnwindSafe(work).catch_unwind();
        let limited = async {
            match limit {
                Some(limit) => timeout(limit, work).await.map_err(|_elapsed| limit),
                None => Ok(work.await),
            }
        };
        let finished = select! {
            biased;
            // This branch is polled first, so that the work is not polled after a loss.
            _lost = self.lease.lost() => return Err(Interrupted::Lost),
            () = self.out_of_time.cancelled() => return Err(Interrupted::OutOfTime),
            finished = limited => finished,
        };
        match finished {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => Err(Interrupted::Restart(panic_message(&*panic).into())),
            Err(limit) => Err(Interrupted::Restart(format!("took longer than {limit:?}").into())),
        }
    }

    /// Fails if the lease is lost or a hand-over is ordered before `length` has passed.
    async fn pause(&mut self, length: Duration) -> Result<(), Interrupted> {
        let mut orders = self.orders.clone();
        select! {
            biased;
            waited = self.wait(length) => waited,
            () = ordered(&mut orders) => Err(Interrupted::Ordered),
        }
    }

    async fn wait(&self, length: Duration) -> Result<(), Interrupted> {
        select! {
            biased;
            _lost = self.lease.lost() => Err(Interrupted::Lost),
            () = self.out_of_time.cancelled() => Err(Interrupted::OutOfTime),
            () = sleep(length) => Ok(()),
        }
    }
}

async fn ordered(orders: &mut watch::Receiver<Order>) {
    let to_give = |order: &Order| matches!(order, Order::Give(_));
    // If the worker is dropped, a hand-over is right, too.
    drop(orders.wait_for(to_give).await);
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a message"))
}
