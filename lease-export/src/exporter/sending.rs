//! One export: reads, packs and sends events, and removes the events that the sink took.

use std::ops::ControlFlow;

use lease_core::FencingToken;
use lease_core::store::Clock;
use tracing::warn;

use crate::batch::{Batch, Packed, Packer, Record};
use crate::buffer::{Intake, Pending, Position, ReadLimit, StopCause};
use crate::dead_letters::Unsendable;
use crate::error::{ServiceError, ServiceErrorKind};
use crate::event::Event;
use crate::exporter::Exporter;
use crate::exporter::error::ExportError;
use crate::exporter::exported::Exported;
use crate::exporter::failures::MOST_COUNTED;
use crate::metrics::{RejectedTo, SentBatch};
use crate::partition::Partitioner;
use crate::sink::{BisectMode, Delivered, Refused, Retries, SinkCall};

pub(crate) struct Sending<'a> {
    exporter: &'a Exporter,
    token: FencingToken,
    partitioner: Partitioner,
    exported: Exported,
    /// The number of successive batches of which the sink took nothing.
    failed_batches: u32,
    /// Events that the sink refused, each in its own record. The refusal may be temporary, or may
    /// concern all events.
    suspects: Vec<Refused>,
    /// At most [`MOST_COUNTED`] positions.
    failed: Vec<Position>,
    /// At most as many events as fit into one request.
    last_tries: Vec<Pending>,
}

struct SinkAnswer {
    has_taken: bool,
    refuses_all: bool,
    refused: Vec<Refused>,
    failed: Vec<Record>,
}

impl<'a> Sending<'a> {
    pub(crate) fn new(exporter: &'a Exporter, token: FencingToken) -> Self {
        Self {
            exporter,
            token,
            partitioner: exporter.partitioner.for_sink(exporter.parts.sink.limits()),
            exported: Exported::default(),
            failed_batches: 0,
            suspects: Vec::new(),
            failed: Vec::new(),
            last_tries: Vec::new(),
        }
    }

    pub(crate) async fn send_pending(
        mut self,
        limit: Option<u64>,
    ) -> Result<Exported, ExportError> {
        let Exporter { parts, events_at_once, .. } = self.exporter;
        // Excludes events that are appended meanwhile. Otherwise this export might never end.
        let mut unread = parts.buffer.pending().await?;
        let mut left = limit.unwrap_or(u64::MAX);
        let limits = parts.sink.limits();
        let mut packer = Packer::new(limits).with_partitioner(&self.partitioner);
        let mut after = None;
        while left.min(unread) > 0 {
            let events = usize::try_from(left.min(unread)).unwrap_or(usize::MAX);
            let most = ReadLimit::new(events.min(*events_at_once), limits.batch_bytes());
            let read = parts.buffer.read(self.token, after, most).await?;
            let read = ExportError::unless_overtaken(self.token, read)?;
            let (Some(first), Some(last)) = (read.first(), read.last()) else { break };
            if after.is_none() {
                self.exporter.failures.forget_before(first.position());
            }
            after = Some(last.position());
            unread = unread.saturating_sub(read.len() as u64);
            for pending in read {
                let failures = self.exporter.failures.of(pending.position());
                if failures >= self.exporter.max_failures
                    && self.last_tries.len() < limits.records_per_batch()
                {
                    left = left.saturating_sub(1);
                    self.last_tries.push(pending);
                    continue;
                }
                let packed = packer.push(pending);
                left = left.saturating_sub(u64::from(!matches!(packed, Packed::TooLarge(_))));
                match packed {
                    Packed::Kept => (),
                    Packed::Full(batch) => {
                        if self.send(batch).await?.is_break() {
                            return Ok(self.end().await);
                        }
                    }
                    Packed::TooLarge(pending) => {
                        let (position, event) = (pending.position(), pending.event());
                        let bytes = event.line().len();
                        let why = Unsendable::TooLarge { bytes, most: limits.record_bytes() };
                        self.exported.too_large += 1;
                        self.remove_unsendable(position, event, &why).await?;
                    }
                }
            }
        }
        if let Some(batch) = packer.finish() {
            // After the last batch, a sink that refuses all requests gets no last tries.
            if self.send(batch).await?.is_break() {
                return Ok(self.end().await);
            }
        }
        self.send_last_tries().await?;
        Ok(self.end().await)
    }

    /// Sends each event that reached the limit of failures in a record of its own. Removes the
    /// events that fail again while the sink takes other events.
    async fn send_last_tries(&mut self) -> Result<(), ExportError> {
        let limits = self.exporter.parts.sink.limits().with_single_events();
        let mut packer = Packer::new(limits).with_partitioner(&self.partitioner);
        let mut batches = Vec::new();
        for pending in std::mem::take(&mut self.last_tries) {
            if let Packed::Full(batch) = packer.push(pending) {
                batches.push(batch);
            }
        }
        batches.extend(packer.finish());
        let (mut failed, counted) = (Vec::new(), self.failed.len());
        for batch in batches {
            let retries = self.exporter.retries;
            let answered = self.deliver(batch.into_records(), retries, BisectMode::Brief).await?;
            self.suspects.extend(answered.refused);
            failed.extend(answered.failed);
            if answered.refuses_all {
                return Ok(());
            }
        }
        if self.exported.sent == 0 {
            return Ok(());
        }
        self.failed.truncate(counted);
        for pending in failed.iter().flat_map(Record::pending) {
            let position = pending.position();
            let exports = self.exporter.failures.of(position).saturating_add(1);
            self.exported.given_up += 1;
            self.exported.failed = self.exported.failed.saturating_sub(1);
            self.remove_unsendable(position, pending.event(), &Unsendable::Failed { exports })
                .await?;
        }
        Ok(())
    }

    /// Remaining suspects count as failed, since the sink may refuse all events now.
    async fn end(mut self) -> Exported {
        for Refused { error, .. } in std::mem::take(&mut self.suspects) {
            self.exported.failed += 1;
            self.exported.sink_error.get_or_insert(error);
        }
        if self.exported.sent > 0 {
            self.exporter.failures.count(&self.failed);
        }
        if self.exported.failed > 0
            && let Err(error) = self.resume_intake().await
        {
            let (key, cause): (_, &(dyn std::error::Error + 'static)) =
                (&self.exporter.key, &error);
            warn!(%key, error = cause, "paused buffer not opened: its state is unknown");
        }
        self.exported
    }

    /// Opens a paused buffer that has only a few events left, if all of them failed in this export.
    ///
    /// Failures count only in an export that sends other events. A paused buffer would take no
    /// other events, so the failed events would never be given up.
    async fn resume_intake(&self) -> Result<(), ServiceError> {
        let (key, buffer) = (&self.exporter.key, &self.exporter.parts.buffer);
        let paused = Intake::Stopped(StopCause::Emergency);
        if buffer.state().await?.intake != paused {
            return Ok(());
        }
        let (pending, capacity) = (buffer.pending().await?, buffer.capacity().events());
        let few = (capacity / 10).max(1);
        let is_tried = pending <= self.exported.failed;
        if is_tried && pending <= few && pending < capacity && buffer.resume_intake().await? {
            warn!(%key, pending, "paused buffer opened: only events that the sink does not take are left");
        }
        Ok(())
    }

    /// Ends the export if the sink refuses all requests.
    async fn send(&mut self, batch: Batch) -> Result<ControlFlow<()>, ExportError> {
        // A sink that takes nothing gets no retries. Each batch is still sent once, so that bad
        // batches do not block the others.
        let is_failing = self.failed_batches >= FAILED_BATCHES;
        let (retries, mode) = if is_failing {
            (Retries::NONE, BisectMode::Brief)
        } else {
            (self.exporter.retries, BisectMode::Thorough)
        };
        let delivered = self.deliver(batch.into_records(), retries, mode).await?;
        self.suspects.extend(delivered.refused);
        if delivered.refuses_all {
            return Ok(ControlFlow::Break(()));
        }
        if !delivered.has_taken {
            self.failed_batches += 1;
            return Ok(ControlFlow::Continue(()));
        }
        self.failed_batches = 0;
        // The first refusal of a suspect may have been temporary. The sink now takes events, so a
        // second refusal is due to the event's content.
        let mut suspects = std::mem::take(&mut self.suspects).into_iter();
        while let Some(Refused { position, event, .. }) = suspects.next() {
            let events = [Pending::new(position, event)];
            let record = Record::of_all(&self.partitioner, &events).into_iter().collect();
            let again = self.deliver(record, retries, BisectMode::Brief).await?;
            for Refused { position, event, error } in again.refused {
                self.exported.refused += 1;
                self.remove_unsendable(position, &event, &Unsendable::Refused(error)).await?;
            }
            if again.refuses_all {
                self.suspects.extend(suspects);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn deliver(
        &mut self,
        records: Vec<Record>,
        retries: Retries,
        mode: BisectMode,
    ) -> Result<SinkAnswer, ExportError> {
        let (token, Exporter { key, parts, put_limit, .. }) = (self.token, self.exporter);
        let (sink, partitioner) = (&*parts.sink, &self.partitioner);
        let call = SinkCall { sink, partitioner, token, limit: *put_limit, retries };
        let (began, records_sent) = (self.exporter.clock.now(), records.len() as u64);
        // Boxed once per batch, to keep the caller's future small.
        let delivered = Box::pin(call.deliver(records, mode)).await;
        let took = self.exporter.clock.now().since(began);
        let Delivered { taken, failed, refused, error } = delivered;
        let taken: Vec<_> = taken.iter().flat_map(Record::positions).collect();
        let positions: Vec<_> = failed.iter().flat_map(Record::positions).collect();
        let batch = SentBatch {
            records: records_sent,
            sent: taken.len() as u64,
            failed: positions.len() as u64,
            took,
            is_ok: error.is_none(),
        };
        self.exporter.metrics.report(|metrics| metrics.batch(&batch));
        if !taken.is_empty() {
            self.exporter.failures.forget(&taken);
            let removed = parts.buffer.remove(token, &taken).await?;
            ExportError::unless_overtaken(token, removed)?;
        }
        self.exported.failed += positions.len() as u64;
        let counted = MOST_COUNTED.saturating_sub(self.failed.len());
        self.failed.extend(positions.into_iter().take(counted));
        self.exported.sent += taken.len() as u64;
        let refuses_all =
            error.as_ref().is_some_and(|error| error.kind() == ServiceErrorKind::Refused);
        if let Some(error) = error {
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(%key, %token, error = cause, "sink request failed");
            self.exported.sink_error = Some(error);
        }
        Ok(SinkAnswer { has_taken: !taken.is_empty(), refuses_all, refused, failed })
    }

    /// Moves the event to the dead letters, or sets the event aside.
    async fn remove_unsendable(
        &mut self,
        position: Position,
        event: &Event,
        why: &Unsendable,
    ) -> Result<(), ExportError> {
        let Exporter { key, dead_letters, metrics, failures, .. } = self.exporter;
        warn!(%key, id = %event.id(), why = why as &dyn std::error::Error, "event cannot be sent");
        let moved = self.move_unsendable(position, event, why).await;
        let to = match (&moved, dead_letters) {
            (Ok(Ok(())), Some(_)) => RejectedTo::DeadLetters,
            (Ok(Ok(())), None) => RejectedTo::Aside,
            (Ok(Err(_)) | Err(_), _) => RejectedTo::Pending,
        };
        metrics.report(|metrics| metrics.rejected(why, to));
        let moved = moved?;
        failures.forget(&[position]);
        if let Err(error) = moved {
            // The event stays pending. The other events are sent.
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(
                %key, id = %event.id(), error = cause,
                "event not moved to dead letters, stays pending"
            );
            return Ok(());
        }
        match dead_letters {
            Some(_) => self.exported.dead_lettered += 1,
            None => self.exported.set_aside += 1,
        }
        Ok(())
    }

    /// The outer error ends the export. After the inner error, the export continues without the event.
    async fn move_unsendable(
        &self,
        position: Position,
        event: &Event,
        why: &Unsendable,
    ) -> Result<Result<(), ServiceError>, ExportError> {
        let (token, Exporter { parts, dead_letters, .. }) = (self.token, self.exporter);
        let moved = match dead_letters {
            Some(dead_letters) => match dead_letters.dead_letter(event, why).await {
                Ok(()) => Ok(parts.buffer.remove(token, &[position]).await?),
                Err(error) => Err(error),
            },
            None => parts.buffer.set_aside(token, &[position]).await,
        };
        match moved {
            Ok(answer) => ExportError::unless_overtaken(token, answer).map(|_number| Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// After this many batches in a row of which the sink took nothing, with retries, the other batches
/// are sent without retries.
const FAILED_BATCHES: u32 = 3;
