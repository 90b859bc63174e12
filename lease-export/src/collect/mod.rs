//! Where an exporter collects from: closed buckets, through a pipeline, into the buffer.

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use lease_core::FencingToken;
use tokio::task::yield_now;
use tracing::{info, warn};

use crate::bucket::{Bucket, BucketStore, Entry, Piece};
use crate::buffer::{Appended, EventBuffer, Fenced, Intake, StopCause};
use crate::collect::pipeline::{Judgement, Pipeline};
use crate::error::ServiceError;
use crate::event::Event;

pub(crate) mod pipeline;

/// Pours closed buckets through a pipeline into a buffer.
#[derive(Debug)]
pub struct BucketSource {
    buckets: Arc<dyn BucketStore>,
    pipeline: Pipeline,
    most: usize,
}

/// What was poured.
#[derive(Debug, Default)]
pub(crate) struct Poured {
    pub(crate) events: u64,
    pub(crate) filtered: u64,
    pub(crate) bad: u64,
    /// Because of which not all was poured.
    pub(crate) error: Option<ServiceError>,
}

/// The closed buckets of one job, on their way through memory.
struct Reading {
    /// Buckets that are not read to their end yet, oldest first, and where to go on.
    waiting: VecDeque<(Bucket, Option<String>)>,
    /// The first bucket that could not be read, and why.
    unread: Option<(Bucket, ServiceError)>,
}

/// A piece of a bucket, and what is to become of its entries.
struct JudgedPiece {
    bucket: Bucket,
    entries: Judged,
    is_last: bool,
}

impl BucketSource {
    /// Reads up to 60 of `buckets` per job, as the earlier exporter did per run. Up to 8 MiB of
    /// entries are in memory at a time, by [`Entry::bytes`], and a few entries more.
    pub fn new(buckets: Arc<dyn BucketStore>, pipeline: Pipeline) -> Self {
        Self { buckets, pipeline, most: 60 }
    }

    /// Reads up to `most` buckets per job, the oldest; at least one. A bucket that cannot be read is
    /// among them, each time: if there are `most` such buckets, nothing else is collected until an
    /// operator removes them.
    #[must_use]
    pub fn with_most(mut self, most: usize) -> Self {
        self.most = most.max(1);
        self
    }

    /// Where it reads.
    pub fn buckets(&self) -> &Arc<dyn BucketStore> {
        &self.buckets
    }

    /// Appends what is closed to `buffer`, then removes exactly that. If a key is in several of
    /// the buckets that are in memory together, the latest value counts of which an event can be made.
    /// Values that are not in memory together are sent one after the other, the latest last. Within one
    /// bucket the last value counts that was put, good or bad: a good one before it is gone by then.
    ///
    /// A crash in between leaves a bucket, or a part of one, that is poured again: the same events,
    /// with the same ids, and no more of them than are moved at once.
    ///
    /// A bucket that cannot be read is told, and left where it is for the next time; the others go on,
    /// also with later values of its keys. What was poured until something failed counts.
    pub(crate) async fn pour(
        &self,
        token: FencingToken,
        buffer: &dyn EventBuffer,
    ) -> Fenced<Poured> {
        let mut poured = Poured::default();
        match self.pour_counting(token, buffer, &mut poured).await {
            Ok(Fenced::Done(())) => Fenced::Done(poured),
            Ok(Fenced::Stale { largest }) => Fenced::Stale { largest },
            Err(error) => Fenced::Done(Poured { error: Some(error), ..poured }),
        }
    }

    async fn pour_counting(
        &self,
        token: FencingToken,
        buffer: &dyn EventBuffer,
        poured: &mut Poured,
    ) -> Result<Fenced<()>, ServiceError> {
        let waiting = self.buckets.closed(self.most).await?.into_iter();
        let mut reading =
            Reading { waiting: waiting.map(|bucket| (bucket, None)).collect(), unread: None };
        let ended = loop {
            let pieces = self.judge(self.read(&mut reading).await).await;
            if pieces.is_empty() {
                break Ok(Fenced::Done(()));
            }
            let first_unread = reading.unread.as_ref().map(|(bucket, _)| *bucket);
            match self.pour_pieces(token, buffer, poured, pieces, first_unread).await {
                Ok(Fenced::Done(ControlFlow::Continue(()))) => (),
                Ok(Fenced::Done(ControlFlow::Break(()))) => break Ok(Fenced::Done(())),
                Ok(Fenced::Stale { largest }) => break Ok(Fenced::Stale { largest }),
                Err(error) => break Err(error),
            }
        };
        poured.error = reading.unread.map(|(_, error)| error);
        ended
    }

    /// Moves `pieces` into `buffer`; breaks off where that has no room.
    async fn pour_pieces(
        &self,
        token: FencingToken,
        buffer: &dyn EventBuffer,
        poured: &mut Poured,
        pieces: Vec<JudgedPiece>,
        first_unread: Option<Bucket>,
    ) -> Result<Fenced<ControlFlow<()>>, ServiceError> {
        let capacity = usize::try_from(buffer.capacity().events()).unwrap_or(usize::MAX);
        // One bucket after the other, so that little is repeated where there is no room for all. A
        // key that was left out here is in a later bucket, which is still there.
        for JudgedPiece { bucket, entries, is_last: is_last_piece } in pieces {
            // Nobody would come back to a bucket behind the marker.
            let is_marked = first_unread.is_none_or(|unread| bucket < unread);
            let mut rest = entries.into_iter().peekable();
            loop {
                // More than there is ever room for would never be moved.
                let entries = portion(&mut rest, EVENTS_AT_ONCE.min(capacity));
                let is_last = rest.peek().is_none();
                let keys: Vec<_> = entries.iter().map(|(entry, _)| entry.key.clone()).collect();
                let (events, others) = events_of(entries);
                if !events.is_empty() {
                    match buffer.append(&events).await? {
                        Appended::Kept { .. } => (),
                        Appended::Full | Appended::Stopped(_) => {
                            self.stop().await?;
                            return Ok(Fenced::Done(ControlFlow::Break(())));
                        }
                    }
                }
                poured.events += events.len() as u64;
                // Now that they go: what stays in its bucket is told of when it does.
                let made = self.pipeline.make(others);
                poured.filtered += made.filtered;
                poured.bad += made.bad;
                let removed = if is_last && is_last_piece && is_marked {
                    self.buckets.remove(token, &[bucket]).await?
                } else {
                    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
                    self.buckets.remove_keys(token, bucket, &keys).await?
                };
                if let Fenced::Stale { largest } = removed {
                    return Ok(Fenced::Stale { largest });
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(Fenced::Done(ControlFlow::Continue(())))
    }

    /// Reads the next pieces, oldest first, as many as are in memory together; none at the end.
    ///
    /// A bucket that does not answer is passed over, unless the whole store does not answer: then each
    /// of the others would cost its own time-out.
    async fn read(&self, reading: &mut Reading) -> Vec<(Bucket, Piece)> {
        let (mut pieces, mut left) = (Vec::new(), READ_BYTES);
        while left > 0
            && let Some((bucket, from)) = reading.waiting.pop_front()
        {
            match self.buckets.read(bucket, from.as_deref(), left).await {
                Ok(piece) => {
                    left = left.saturating_sub(piece.entries.iter().map(Entry::bytes).sum());
                    let next = piece.next.clone();
                    pieces.push((bucket, piece));
                    if next.is_some() {
                        reading.waiting.push_front((bucket, next));
                        break;
                    }
                }
                Err(error) => {
                    warn!(%bucket, error = &error as &dyn Error, "bucket skipped: it cannot be read");
                    if error.is_retryable() && self.buckets.marker().await.is_err() {
                        reading.waiting.clear();
                    }
                    reading.unread.get_or_insert((bucket, error));
                }
            }
        }
        pieces
    }

    /// Judges the entries of `pieces`, the newest first, since those replace older ones.
    async fn judge(&self, pieces: Vec<(Bucket, Piece)>) -> Vec<JudgedPiece> {
        let (mut judged, mut replaced) = (Vec::new(), BTreeSet::new());
        let mut unbroken = 0;
        for (bucket, Piece { entries, next }) in pieces.into_iter().rev() {
            let mut of_piece = Vec::new();
            for entry in entries {
                unbroken +=
                    PARSED_BYTES + entry.key.len() + entry.value.as_ref().map_or(0, String::len);
                if unbroken > UNBROKEN_BYTES {
                    unbroken = 0;
                    // Whoever keeps the lease alive may have no other thread than this one.
                    yield_now().await;
                }
                let judgement = if replaced.contains(&entry.key) {
                    Judgement::Replaced
                } else {
                    self.pipeline.judge(&entry)
                };
                // What is bad is no event, and replaces none of an earlier bucket. That it has replaced
                // those of its own was decided when it was put.
                if matches!(judgement, Judgement::Event(_)) {
                    replaced.insert(entry.key.clone());
                }
                of_piece.push((entry, judgement));
            }
            judged.push(JudgedPiece { bucket, entries: of_piece, is_last: next.is_none() });
        }
        judged.reverse();
        judged
    }

    /// There is no room behind the buckets: nothing more is to be collected until there is.
    async fn stop(&self) -> Result<(), ServiceError> {
        let emergency = Intake::Stopped(StopCause::Emergency);
        if self.buckets.set_intake(emergency).await? == Intake::Open {
            warn!("the event buffer has no room: buckets take nothing in until they are drained");
        } else {
            info!("the event buffer has no room, and buckets take nothing in already");
        }
        Ok(())
    }
}

/// The next of `rest` that are moved together: `most` at most, 1 or more, and no more bytes than are
/// moved at once, unless the first has more by itself.
fn portion(rest: &mut Peekable<IntoIter<(Entry, Judgement)>>, most: usize) -> Judged {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    while let Some(next) = rest.next_if(|next| {
        bytes += moved_bytes(next);
        portion.is_empty() || (portion.len() < most && bytes <= BYTES_AT_ONCE)
    }) {
        portion.push(next);
    }
    portion
}

/// What it takes to append an entry's event, and to remove its key.
fn moved_bytes((entry, judgement): &(Entry, Judgement)) -> usize {
    let appended = match judgement {
        Judgement::Event(event) => event.id().as_str().len() + event.line().len(),
        Judgement::Filtered | Judgement::Replaced | Judgement::Bad(_) => 0,
    };
    appended + entry.key.len()
}

fn events_of(entries: Judged) -> (Vec<Event>, Judged) {
    let (mut events, mut others) = (Vec::new(), Vec::new());
    for (entry, judgement) in entries {
        match judgement {
            Judgement::Event(event) => events.push(event),
            other => others.push((entry, other)),
        }
    }
    (events, others)
}

type Judged = Vec<(Entry, Judgement)>;

/// How many entries are moved at once, at most.
const EVENTS_AT_ONCE: usize = 1000;

/// How many bytes: about what a sink takes in one request. A request that is too long is given up, and
/// applied all the same; then what it has is appended again with each try.
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// How much of the buckets is in memory at a time: twice what is moved at once, so that many small
/// buckets are read together, and a key that is in several of them is sent once.
const READ_BYTES: usize = 8 * 1024 * 1024;

/// After how much to parse others get their turn: milliseconds, where a lease lasts 100 ms or more.
const UNBROKEN_BYTES: usize = 64 * 1024;

/// What an entry counts for beside its text, since a parser has work with the shortest: so that no
/// more than 256 are judged in a row.
const PARSED_BYTES: usize = 256;
