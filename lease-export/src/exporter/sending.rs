//! One export on its way: reads a piece, packs it, sends what is full, removes what was taken.

use std::ops::ControlFlow;

use lease_core::FencingToken;
use tracing::warn;

use crate::batch::{Batch, Packed, Packer, Record};
use crate::buffer::{Intake, Most, Pending, Position, StopCause};
use crate::dead_letters::Unsendable;
use crate::error::{ServiceError, ServiceErrorKind};
use crate::event::Event;
use crate::exporter::Exporter;
use crate::exporter::error::ExportError;
use crate::exporter::exported::Exported;
use crate::exporter::failures::MOST_COUNTED;
use crate::sink::{Delivered, Door, Refused, Retries, Search};

pub(crate) struct Sending<'a> {
    exporter: &'a Exporter,
    token: FencingToken,
    exported: Exported,
    /// Batches in a row of which the sink took nothing.
    in_vain: u32,
    /// Events that were refused alone, while it is not known yet whether that was because of them, or
    /// whether it would be again.
    suspects: Vec<Refused>,
    /// Events that the sink did not take, up to as many as are counted.
    failed: Vec<Position>,
    /// Events that have failed in as many exports as they may, up to one request.
    last_tries: Vec<Pending>,
}

/// What the sink said of some records.
struct Answered {
    has_taken: bool,
    /// It refuses whatever is sent to it.
    is_shut: bool,
    refused: Vec<Refused>,
    failed: Vec<Record>,
}

impl<'a> Sending<'a> {
    pub(crate) fn new(exporter: &'a Exporter, token: FencingToken) -> Self {
        Self {
            exporter,
            token,
            exported: Exported::default(),
            in_vain: 0,
            suspects: Vec::new(),
            failed: Vec::new(),
            last_tries: Vec::new(),
        }
    }

    /// Sends up to `limit` of what is pending now, oldest first, or all of it.
    pub(crate) async fn send_pending(
        mut self,
        limit: Option<u64>,
    ) -> Result<Exported, ExportError> {
        let Exporter { parts, events_at_once, .. } = self.exporter;
        // What is appended meanwhile is the next run's: otherwise this might never end.
        let mut unread = parts.buffer.pending().await?;
        let mut left = limit.unwrap_or(u64::MAX);
        let limits = parts.sink.limits();
        let mut packer = Packer::new(limits);
        let mut after = None;
        while left.min(unread) > 0 {
            let events = usize::try_from(left.min(unread)).unwrap_or(usize::MAX);
            let most = Most::new(events.min(*events_at_once), limits.batch_bytes());
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
                if failures >= self.exporter.most_failures
                    && self.last_tries.len() < limits.records_per_batch()
                {
                    left = left.saturating_sub(1);
                    self.last_tries.push(pending);
                    continue;
                }
                let packed = packer.push(pending);
                // What cannot be sent does not count.
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
                        self.put_away(position, event, &why).await?;
                    }
                }
            }
        }
        if let Some(batch) = packer.finish() {
            // It is the last, whatever becomes of it.
            if self.send(batch).await?.is_break() {
                return Ok(self.end().await);
            }
        }
        self.try_for_the_last_time().await?;
        Ok(self.end().await)
    }

    /// Sends each event that has failed as often as it may in a record of its own, and puts it away if
    /// that fails, too, while the sink takes others.
    async fn try_for_the_last_time(&mut self) -> Result<(), ExportError> {
        let mut packer = Packer::new(self.exporter.parts.sink.limits().with_single_events());
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
            let answered = self.deliver(batch.into_records(), retries, Search::Brief).await?;
            self.suspects.extend(answered.refused);
            failed.extend(answered.failed);
            if answered.is_shut {
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
            self.put_away(position, pending.event(), &Unsendable::Failed { exports }).await?;
        }
        Ok(())
    }

    /// Of what is suspect still, nobody knows whether the sink would have taken anything in its place.
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
            warn!(%key, error = cause, "whether a paused buffer can be opened is not known");
        }
        self.exported
    }

    /// Opens a paused buffer if nothing is left in it but a few events that the sink has not taken just
    /// now. Otherwise one that it never takes would keep the buffer closed; and only if others come in
    /// can the sink show that it takes those.
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
            warn!(%key, pending, "paused buffer opened: the sink takes none of the events left in it");
        }
        Ok(())
    }

    /// Sends a batch; ends the export where the sink refuses whatever is sent to it.
    async fn send(&mut self, batch: Batch) -> Result<ControlFlow<()>, ExportError> {
        // A sink that takes nothing is not asked again and again; but each batch is sent once, so
        // that those which it never takes do not keep back the others.
        let is_in_vain = self.in_vain >= BATCHES_IN_VAIN;
        let (retries, search) = if is_in_vain {
            (Retries::NONE, Search::Brief)
        } else {
            (self.exporter.retries, Search::Thorough)
        };
        let delivered = self.deliver(batch.into_records(), retries, search).await?;
        self.suspects.extend(delivered.refused);
        if delivered.is_shut {
            return Ok(ControlFlow::Break(()));
        }
        if !delivered.has_taken {
            self.in_vain += 1;
            return Ok(ControlFlow::Continue(()));
        }
        self.in_vain = 0;
        // It takes what is sent to it. What it refuses once more, it refuses for what that is: the
        // first time may have been a passing trouble of its own.
        let mut suspects = std::mem::take(&mut self.suspects).into_iter();
        while let Some(Refused { position, event, .. }) = suspects.next() {
            let record = Record::of_all(&[Pending::new(position, event)]).into_iter().collect();
            let again = self.deliver(record, retries, Search::Brief).await?;
            for Refused { position, event, error } in again.refused {
                self.exported.refused += 1;
                self.put_away(position, &event, &Unsendable::Refused(error)).await?;
            }
            if again.is_shut {
                self.suspects.extend(suspects);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Sends `records`, removes what was taken, and counts.
    async fn deliver(
        &mut self,
        records: Vec<Record>,
        retries: Retries,
        search: Search,
    ) -> Result<Answered, ExportError> {
        let (token, Exporter { key, parts, put_limit, .. }) = (self.token, self.exporter);
        let door = Door { sink: &*parts.sink, token, limit: *put_limit, retries };
        // Boxed, once per batch: whoever flushes would have it in his own future otherwise.
        let delivered = Box::pin(door.deliver(records, search)).await;
        let Delivered { taken, failed, refused, error } = delivered;
        let taken: Vec<_> = taken.iter().flat_map(Record::positions).collect();
        if !taken.is_empty() {
            self.exporter.failures.forget(&taken);
            let removed = parts.buffer.remove(token, &taken).await?;
            ExportError::unless_overtaken(token, removed)?;
        }
        let positions: Vec<_> = failed.iter().flat_map(Record::positions).collect();
        self.exported.failed += positions.len() as u64;
        let counted = MOST_COUNTED.saturating_sub(self.failed.len());
        self.failed.extend(positions.into_iter().take(counted));
        self.exported.sent += taken.len() as u64;
        let is_shut = error.as_ref().is_some_and(|error| error.kind() == ServiceErrorKind::Refused);
        if let Some(error) = error {
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(%key, %token, error = cause, "a request to the sink failed");
            self.exported.sink_error = Some(error);
        }
        Ok(Answered { has_taken: !taken.is_empty(), is_shut, refused, failed })
    }

    /// Takes an event that the sink will never take out of the way of the others.
    async fn put_away(
        &mut self,
        position: Position,
        event: &Event,
        why: &Unsendable,
    ) -> Result<(), ExportError> {
        let (token, Exporter { key, parts, dead_letters, .. }) = (self.token, self.exporter);
        warn!(%key, id = %event.id(), why = why as &dyn std::error::Error, "event cannot be sent");
        let put_away = match dead_letters {
            Some(dead_letters) => match dead_letters.bury(event, why).await {
                Ok(()) => Ok(parts.buffer.remove(token, &[position]).await?),
                Err(error) => Err(error),
            },
            None => parts.buffer.set_aside(token, &[position]).await,
        };
        self.exporter.failures.forget(&[position]);
        match put_away {
            Ok(put_away) => ExportError::unless_overtaken(token, put_away)?,
            Err(error) => {
                // It stays where it is, and does not hold up the rest.
                let cause: &(dyn std::error::Error + 'static) = &error;
                warn!(%key, id = %event.id(), error = cause, "event not put away, stays pending");
                return Ok(());
            }
        };
        match dead_letters {
            Some(_) => self.exported.buried += 1,
            None => self.exported.set_aside += 1,
        }
        Ok(())
    }
}

/// After so many batches in a row of which it took nothing, each retried, the sink is sent each of
/// the others once.
const BATCHES_IN_VAIN: u32 = 3;
