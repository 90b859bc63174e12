//! Moves closed buckets through a pipeline into the buffer.

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

/// Moves closed buckets through a pipeline into a buffer.
#[derive(Debug)]
pub struct BucketSource {
    buckets: Arc<dyn BucketStore>,
    pipeline: Pipeline,
    most: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) events: u64,
    pub(crate) filtered: u64,
    pub(crate) bad: u64,
    /// Why some closed buckets were not collected.
    pub(crate) error: Option<ServiceError>,
}

struct Reading {
    /// Buckets that are not read completely, oldest first, with the start of their next piece.
    waiting: VecDeque<(Bucket, Option<String>)>,
    /// The first unreadable bucket.
    unread: Option<(Bucket, ServiceError)>,
}

struct JudgedPiece {
    bucket: Bucket,
    entries: Judged,
    is_last: bool,
}

impl BucketSource {
    /// Reads up to 60 of `buckets` per job: five minutes of the default interval. The entries in
    /// memory have up to 8 MiB by [`Entry::bytes`], plus a few entries.
    pub fn new(buckets: Arc<dyn BucketStore>, pipeline: Pipeline) -> Self {
        Self { buckets, pipeline, most: 60 }
    }

    /// Reads up to `most` buckets per job, oldest first, at least 1. Unreadable buckets count
    /// towards `most`. If `most` buckets are unreadable, the source collects nothing until an
    /// operator removes them.
    #[must_use]
    pub fn with_max_buckets(mut self, most: usize) -> Self {
        self.most = most.max(1);
        self
    }

    /// The bucket store.
    pub fn buckets(&self) -> &Arc<dyn BucketStore> {
        &self.buckets
    }

    /// Appends the entries of closed buckets to `buffer`, then removes exactly these entries.
    ///
    /// If several buckets in memory have the same key, only the latest value that makes an event is
    /// sent. If the buckets are not in memory together, all values are sent, the latest last.
    ///
    /// After a crash before the removal, the next job collects at most the entries of one step
    /// again, with the same ids.
    ///
    /// An unreadable bucket stays for the next job, and the other buckets are collected. After an
    /// error, the result counts the entries that were collected before.
    pub(crate) async fn collect(
        &self,
        token: FencingToken,
        buffer: &dyn EventBuffer,
    ) -> Fenced<Collected> {
        let mut collected = Collected::default();
        match self.collect_into(token, buffer, &mut collected).await {
            Ok(Fenced::Done(())) => Fenced::Done(collected),
            Ok(Fenced::Stale { largest }) => Fenced::Stale { largest },
            Err(error) => Fenced::Done(Collected { error: Some(error), ..collected }),
        }
    }

    async fn collect_into(
        &self,
        token: FencingToken,
        buffer: &dyn EventBuffer,
        collected: &mut Collected,
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
            match self.move_pieces(token, buffer, collected, pieces, first_unread).await {
                Ok(Fenced::Done(ControlFlow::Continue(()))) => (),
                Ok(Fenced::Done(ControlFlow::Break(()))) => break Ok(Fenced::Done(())),
                Ok(Fenced::Stale { largest }) => break Ok(Fenced::Stale { largest }),
                Err(error) => break Err(error),
            }
        };
        collected.error = reading.unread.map(|(_, error)| error);
        ended
    }

    /// Stops if the buffer has no room.
    async fn move_pieces(
        &self,
        token: FencingToken,
        buffer: &dyn EventBuffer,
        collected: &mut Collected,
        pieces: Vec<JudgedPiece>,
        first_unread: Option<Bucket>,
    ) -> Result<Fenced<ControlFlow<()>>, ServiceError> {
        let capacity = usize::try_from(buffer.capacity().events()).unwrap_or(usize::MAX);
        // Moves one bucket after the other, so that the next job repeats little if the buffer is
        // full. A key that was left out as replaced has its latest value in a later bucket.
        for JudgedPiece { bucket, entries, is_last: is_last_piece } in pieces {
            // No job reads a bucket up to the marker again.
            let is_marked = first_unread.is_none_or(|unread| bucket < unread);
            let mut rest = entries.into_iter().peekable();
            loop {
                // A step that is larger than the capacity would never succeed.
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
                collected.events += events.len() as u64;
                // If the buffer is full, the entries stay in their bucket, and the next job reports
                // them. So bad entries are reported after the append.
                let made = self.pipeline.make(others);
                collected.filtered += made.filtered;
                collected.bad += made.bad;
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

    /// Reads the next pieces, oldest first, as many as fit into memory together. Returns no piece
    /// at the end.
    ///
    /// Skips a bucket whose read fails. Stops if the store does not answer, since each further read
    /// would wait for its own timeout.
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
                    warn!(%bucket, error = &error as &dyn Error, "bucket not readable, skipped");
                    if error.is_retryable() && self.buckets.marker().await.is_err() {
                        reading.waiting.clear();
                    }
                    reading.unread.get_or_insert((bucket, error));
                }
            }
        }
        pieces
    }

    /// Newest first, since newer values replace older values.
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
                    // The lease's heartbeats may run on the same thread.
                    yield_now().await;
                }
                let judgement = if replaced.contains(&entry.key) {
                    Judgement::Replaced
                } else {
                    self.pipeline.judge(&entry)
                };
                // A bad value replaces no value of an earlier bucket.
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

    async fn stop(&self) -> Result<(), ServiceError> {
        let emergency = Intake::Stopped(StopCause::Emergency);
        if self.buckets.set_intake(emergency).await? == Intake::Open {
            warn!("event buffer full: bucket intake stopped until drained");
        } else {
            info!("event buffer full: bucket intake was stopped already");
        }
        Ok(())
    }
}

/// Takes the next entries that move together: up to `most`, 1 or more, of up to [`BYTES_AT_ONCE`]
/// bytes. A first entry that is larger moves alone.
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

/// The bytes of an entry's append and of its removal.
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

const EVENTS_AT_ONCE: usize = 1000;

/// Per step, about the size of a sink's request. A longer request may time out but still be
/// applied, and each retry would append its events again.
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// The largest number of bucket bytes in memory: twice a step. So many small buckets are read
/// together, and a key in several of them is sent once.
const READ_BYTES: usize = 8 * 1024 * 1024;

/// Parsing yields after this many bytes. They take a few milliseconds, so a lease of 100 ms is
/// extended in time.
const UNBROKEN_BYTES: usize = 64 * 1024;

/// Added to the bytes of each entry, since even the shortest entry takes time. At most 256 entries
/// are parsed without a yield.
const PARSED_BYTES: usize = 256;
