//! One shard while this worker has it: from the lease to whatever ends it.

mod ending;
mod handing_over;

use std::error::Error;
use std::future::Future;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::{Lease, Lessee, Locker, Written};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub(crate) use self::handing_over::free;
use crate::board::Entry;
use crate::checkpoint::{Checkpointer, Ledger};
use crate::position::Position;
use crate::processor::{NeedsRestart, Outcome, ProcessorError, RecordProcessor, ShardContext};
use crate::reader::{Read, Reader};
use crate::record::Batch;
use crate::row::{self, ShardRow};
use crate::settings::{Checkpoints, Settings};
use crate::shard::ShardId;
use crate::source::Source;
use crate::sync::ShardSync;

/// One shard that this worker holds.
pub(crate) struct ShardTask {
    pub(crate) settings: Arc<Settings>,
    pub(crate) sync: Arc<ShardSync>,
    pub(crate) lease: Lease,
    pub(crate) locker: Locker,
    pub(crate) row: ShardRow,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) entry: Entry,
    pub(crate) orders: watch::Receiver<Order>,
    /// Cancelled when the worker has no more time.
    pub(crate) out_of_time: CancellationToken,
}

/// What the worker wants of a shard that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    Read,
    /// To give it to this worker; or to anybody.
    Give(Option<Lessee>),
}

/// How it came that a shard is read no longer.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The lease was lost.
    Lost,
    /// It was handed over, or released.
    Given,
    /// All of it was read.
    ShardEnd,
    /// The stream has dropped it.
    Gone,
    /// It was given up for a while.
    GivenUp,
    /// A processor wants the worker to stop.
    StopWorker(ProcessorError),
}

/// Why the work on a batch, or on a whole shard, was broken off.
enum Broken {
    Lost,
    OutOfTime,
    Ordered,
    /// Ordered away before its processor was ready.
    Unbegun,
    /// The processor's state is not known any more: another begins at the checkpoint.
    Restart(ProcessorError),
    GiveUp(ProcessorError),
    StopWorker(ProcessorError),
}

impl ShardTask {
    /// Reads the shard until it is to be read no longer.
    pub(crate) async fn run(mut self) -> Ended {
        let table = Arc::clone(&self.settings.table);
        let grant = self.lease.grant().clone();
        self.row.switches = self.row.switches.saturating_add(1);
        let switched = row::switched(self.row.switches);
        let counted = table.update(&grant, &switched);
        match self.guarded(None, counted).await {
            // Only how long a failing shard is left alone depends on it.
            Ok(counted) => drop(counted),
            Err(broken) => return self.end(broken).await,
        }
        if let Err(broken) = self.begin_at_a_time().await {
            return self.end(broken).await;
        }
        if let Err(broken) = self.find_hash_keys().await {
            return self.end(broken).await;
        }
        let ledger = Ledger::new(&self.settings, grant, &self.row, self.entry.clone());
        let mut position = self.row.checkpoint.clone();
        let mut restarts = 0;
        loop {
            let broken = self.round(&ledger, position.clone()).await;
            let cause = match broken {
                Ok(ended) => return ended,
                Err(Broken::Restart(cause)) => cause,
                Err(broken) => return self.end(broken).await,
            };
            self.entry.restarted();
            // Somebody else's clone may still be at a checkpoint.
            let reached = match self.guarded(None, ledger.begin()).await {
                Ok(reached) => reached,
                Err(broken) => return self.end(broken).await,
            };
            // One that got on is no sign that the next will not.
            if reached > position {
                restarts = 0;
            }
            position = reached;
            restarts += 1;
            let pause = self.settings.backoff(restarts);
            warn!(
                shard = %self.row.shard, restarts, ?pause, error = &*cause as &dyn Error,
                "processor failed, another one begins at the checkpoint"
            );
            let broken = if self.settings.restarts.is_some_and(|most| restarts > most) {
                Broken::GiveUp(cause)
            } else {
                match self.pause(pause).await {
                    Ok(()) => continue,
                    Err(broken) => broken,
                }
            };
            let broken = self.keep_at_last(&ledger.term(), broken).await;
            return self.end(broken).await;
        }
    }

    /// `LATEST` is another place each time that it is asked for: whoever ended before the first
    /// checkpoint would skip what came meanwhile. So the moment at which the shard is begun with is
    /// written in its place. Rows of this crate say it from the start; those of the Kinesis Client
    /// Library do not.
    async fn begin_at_a_time(&mut self) -> Result<(), Broken> {
        if self.row.checkpoint != Position::Latest {
            return Ok(());
        }
        let begun = Position::AtTimestamp((self.settings.wall_clock)());
        let change = row::checkpoint(&self.row.written, &begun);
        let (table, grant) = (Arc::clone(&self.settings.table), self.lease.grant().clone());
        let mut failures = 0;
        loop {
            match self.guarded(None, table.update(&grant, &change)).await? {
                Ok(Written::Applied) => break,
                // An earlier try, whose answer did not come.
                Ok(Written::Unexpected) if failures > 0 => break,
                Ok(Written::Lost(_) | Written::Unexpected) => return Err(Broken::Lost),
                Err(cause) => {
                    failures += 1;
                    let shard = &self.row.shard;
                    warn!(%shard, error = &cause as &dyn Error, "its beginning is not written yet");
                    self.pause(self.settings.backoff(failures)).await?;
                }
            }
        }
        self.row.written = row::words(&begun);
        self.row.checkpoint = begun;
        Ok(())
    }

    /// Asks the stream for the hash keys of the shard, if its row has none. By these, records of an
    /// aggregate that belong to another shard are left out.
    async fn find_hash_keys(&mut self) -> Result<(), Broken> {
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
            // Records may come twice: once from each of two shards.
            Ok(Err(cause)) => {
                warn!(%shard, error = &cause as &dyn Error, "hash keys of a shard not found");
            }
            Err(_elapsed) => warn!(%shard, "hash keys of a shard not found in time"),
        }
        Ok(())
    }

    /// One processor, from the checkpoint at `position` on.
    async fn round(&mut self, ledger: &Arc<Ledger>, position: Position) -> Result<Ended, Broken> {
        // What this processor has begun by itself ends with it: the next one is given the same again.
        let cancellation = self.lease.cancelled_on_loss().child_token();
        let _ends_with_it = cancellation.clone().drop_guard();
        let context = ShardContext {
            shard: self.row.shard.clone(),
            position,
            token: Some(self.lease.token()),
            cancellation,
        };
        let made = async { self.settings.factory.processor(&context) };
        let mut processor = self.guarded(None, made).await?;
        // Ends before the processor, whichever way this ends.
        let checkpointer = ledger.term();
        let begun = select! {
            biased;
            // The reading first: what ends it ends the writing of owed checkpoints, too.
            begun = self.begin(&mut *processor, &context, &checkpointer) => begun,
            never = checkpointer.settle() => match never {},
        };
        let ended = match begun {
            Err(Broken::Ordered) => self.shut_down(&mut *processor, &checkpointer).await,
            Err(Broken::Unbegun) => match self.keep_what_is_owed(&checkpointer).await {
                Ok(()) => self.give_away(&checkpointer).await,
                Err(broken) => Err(broken),
            },
            // What was worked on before it gave up is not worked on again.
            Err(broken @ (Broken::GiveUp(_) | Broken::StopWorker(_))) => {
                Err(self.keep_at_last(&checkpointer, broken).await)
            }
            Err(broken @ (Broken::Lost | Broken::OutOfTime)) => {
                checkpointer.close();
                let farewell = AssertUnwindSafe(processor.lease_lost()).catch_unwind();
                // Another may hold the shard already: nobody waits for this for long.
                drop(timeout(self.settings.grace, farewell).await);
                Err(broken)
            }
            ended => ended,
        };
        drop(checkpointer);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(processor)));
        if let Err(panic) = dropped {
            error!(shard = %self.row.shard, said = said_in(&*panic), "processor panicked as it was dropped");
        }
        ended
    }

    async fn begin(
        &mut self,
        processor: &mut dyn RecordProcessor,
        context: &ShardContext,
        checkpointer: &Checkpointer,
    ) -> Result<Ended, Broken> {
        let mut orders = self.orders.clone();
        let initialized = select! {
            biased;
            // Nothing has begun yet that could be ended in good order.
            () = ordered(&mut orders) => return Err(Broken::Unbegun),
            initialized = self.guarded(self.settings.batch_limit, processor.initialize(context)) => {
                initialized?
            }
        };
        initialized.map_err(Broken::Restart)?;
        let settings = Arc::clone(&self.settings);
        let mut reader = Reader::new(
            Arc::clone(&self.source),
            self.row.shard.clone(),
            self.row.hash_keys,
            context.position.clone(),
            settings.retrieval,
            settings.pace,
        );
        let mut orders = self.orders.clone();
        loop {
            let mut reading = pin!(reader.read());
            let read = loop {
                select! {
                    biased;
                    // The loss first: nothing more is read, let alone worked on. Then what ends the
                    // reading in good order.
                    _lost = self.lease.lost() => return Err(Broken::Lost),
                    () = self.out_of_time.cancelled() => return Err(Broken::OutOfTime),
                    () = ordered(&mut orders) => return Err(Broken::Ordered),
                    // Between batches: all that was delivered is processed.
                    () = self.checkpoint_due(checkpointer) => {
                        self.checkpoint_sometimes(checkpointer).await?;
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
                Read::Gone => return Ok(Ended::Gone),
            }
        }
    }

    /// Has the processor work on `batch` until all of it is processed or skipped.
    async fn work(
        &mut self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
        mut batch: Batch,
    ) -> Result<(), Broken> {
        let before = checkpointer.reach();
        let mut failures = 0;
        loop {
            if let Some(last) = batch.last() {
                checkpointer.deliver(last.clone());
            }
            let work = processor.process_records(&batch, checkpointer);
            let outcome = self.guarded(self.settings.batch_limit, work).await?;
            if let Outcome::Continue = outcome {
                self.entry.worked(batch.records.len());
                return self.checkpoint_sometimes(checkpointer).await;
            }
            // What the processor asked to checkpoint is processed. Only the rest is delivered again.
            let asked = self.guarded(None, checkpointer.take_back(before.clone())).await?;
            let done = batch.drop_until(&asked);
            self.entry.worked(done);
            let is_done = done > 0 && batch.records.is_empty();
            if done > 0 {
                failures = 0;
            }
            let shard = &self.row.shard;
            let pause = match outcome {
                Outcome::Skip => {
                    let (records, last) = (batch.records.len(), batch.last());
                    warn!(%shard, records, ?last, "processor skipped a batch");
                    self.entry.skipped(&batch);
                    if let Some(last) = last {
                        checkpointer.deliver(last.clone());
                    }
                    return self.checkpoint_sometimes(checkpointer).await;
                }
                Outcome::StopShard(cause) => return Err(Broken::GiveUp(cause)),
                Outcome::StopWorker(cause) => return Err(Broken::StopWorker(cause)),
                Outcome::Failed(cause) => {
                    let cause = match NeedsRestart::cause(cause) {
                        Ok(cause) => {
                            self.entry.failed(&batch);
                            return Err(Broken::Restart(cause));
                        }
                        Err(cause) => cause,
                    };
                    if is_done {
                        warn_of_late_failure(shard, &*cause);
                        return self.checkpoint_sometimes(checkpointer).await;
                    }
                    failures += 1;
                    if self.settings.failures.is_some_and(|most| failures >= most) {
                        self.entry.failed(&batch);
                        return Err(Broken::GiveUp(cause));
                    }
                    let pause = self.settings.backoff(failures);
                    let error = &*cause as &dyn Error;
                    warn!(%shard, failures, ?pause, error, "batch failed, trying again");
                    pause
                }
                Outcome::Retry(_) if is_done => {
                    return self.checkpoint_sometimes(checkpointer).await;
                }
                Outcome::Retry(pause) => pause,
                Outcome::Continue => Duration::ZERO,
            };
            self.entry.failed(&batch);
            batch.attempt += 1;
            self.pause(pause).await?;
        }
    }

    /// Waits until the worker is to checkpoint what was processed. For ever, if the processor does.
    async fn checkpoint_due(&self, checkpointer: &Checkpointer) {
        let due = match self.settings.checkpoints {
            Checkpoints::Every(length) if checkpointer.has_more().await => length,
            Checkpoints::Every(_) | Checkpoints::ByProcessor => return pending().await,
        };
        sleep(due.saturating_sub(self.entry.since_checkpoint())).await;
    }

    /// Checkpoints what was processed, if the worker decides when and it is time.
    async fn checkpoint_sometimes(&mut self, checkpointer: &Checkpointer) -> Result<(), Broken> {
        if !self.settings.checkpoints.is_due(self.entry.since_checkpoint()) {
            return Ok(());
        }
        if let Err(cause) = self.guarded(None, checkpointer.checkpoint()).await? {
            let error = &cause as &dyn Error;
            warn!(shard = %self.row.shard, error, "not checkpointed, it will be later");
        }
        Ok(())
    }

    /// What is left to be done with the lease.
    async fn end(self, broken: Broken) -> Ended {
        let shard = &self.row.shard;
        match broken {
            Broken::Lost => {
                warn!(%shard, token = %self.lease.token(), "lease lost, shard read no longer");
                self.entry.lost();
                Ended::Lost
            }
            Broken::OutOfTime => {
                warn!(%shard, "no time left, shard given up as it is");
                Ended::Given
            }
            Broken::Ordered | Broken::Unbegun => Ended::Given,
            Broken::Restart(cause) | Broken::GiveUp(cause) => {
                let rest = self.settings.backoff(self.row.switches.saturating_add(4));
                error!(%shard, ?rest, error = &*cause as &dyn Error, "shard given up for a while");
                drop(self.lease.release_reserved(rest).await);
                Ended::GivenUp
            }
            Broken::StopWorker(cause) => Ended::StopWorker(cause),
        }
    }

    /// Runs `work` of a processor, or on its behalf, as long as the shard is ours.
    async fn guarded<F: Future>(
        &self,
        limit: Option<Duration>,
        work: F,
    ) -> Result<F::Output, Broken> {
        let work = AssertUnwindSafe(work).catch_unwind();
        let limited = async {
            match limit {
                Some(limit) => timeout(limit, work).await.map_err(|_elapsed| limit),
                None => Ok(work.await),
            }
        };
        let finished = select! {
            biased;
            // The loss first: no step of the work is taken after it.
            _lost = self.lease.lost() => return Err(Broken::Lost),
            () = self.out_of_time.cancelled() => return Err(Broken::OutOfTime),
            finished = limited => finished,
        };
        match finished {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => Err(Broken::Restart(said_in(&*panic).into())),
            Err(limit) => Err(Broken::Restart(format!("took longer than {limit:?}").into())),
        }
    }

    /// Waits, unless something else is wanted meanwhile.
    async fn pause(&mut self, length: Duration) -> Result<(), Broken> {
        let mut orders = self.orders.clone();
        select! {
            biased;
            waited = self.wait(length) => waited,
            () = ordered(&mut orders) => Err(Broken::Ordered),
        }
    }

    async fn wait(&self, length: Duration) -> Result<(), Broken> {
        select! {
            biased;
            _lost = self.lease.lost() => Err(Broken::Lost),
            () = self.out_of_time.cancelled() => Err(Broken::OutOfTime),
            () = sleep(length) => Ok(()),
        }
    }
}

fn warn_of_late_failure(shard: &ShardId, error: &(dyn Error + 'static)) {
    warn!(%shard, error, "processor failed after it had checkpointed its batch");
}

/// Completes once the shard is to be given away.
async fn ordered(orders: &mut watch::Receiver<Order>) {
    let to_give = |order: &Order| matches!(order, Order::Give(_));
    // A worker that is gone gives everything away by dropping its leases.
    drop(orders.wait_for(to_give).await);
}

fn said_in(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a text"))
}
