//! Where an exporter collects from: closed buckets, through a pipeline, into the buffer.

use std::collections::BTreeSet;
use std::error::Error;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use lease_core::FencingToken;
use tokio::task::yield_now;
use tracing::{info, warn};

use crate::error::{ServiceError, ServiceErrorKind};
use crate::export::bucket::{Bucket, BucketStore, Entry};
use crate::export::buffer::{Appended, EventBuffer, Fenced, Intake, StopCause};
use crate::export::event::Event;
use crate::export::pipeline::{Judgement, Pipeline};

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

/// What was read.
struct Contents {
    judged: Vec<(Bucket, Judged)>,
    /// The first that could not be read, and why.
    unread: Option<(Bucket, ServiceError)>,
}

impl BucketSource {
    /// Reads `buckets`, up to 60 at a time: what the earlier exporter read per run. All of them are
    /// in memory then.
    pub fn new(buckets: Arc<dyn BucketStore>, pipeline: Pipeline) -> Self {
        Self { buckets, pipeline, most: 60 }
    }

    /// Reads up to `most` buckets at a time, the oldest. One that cannot be read is among them, each
    /// time: where it is so many, nothing else is collected until somebody has seen to them.
    #[must_use]
    pub fn with_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Where it reads.
    pub fn buckets(&self) -> &Arc<dyn BucketStore> {
        &self.buckets
    }

    /// Appends what is closed to `buffer`, then removes exactly that. Where a key is in several of
    /// the buckets, the latest value counts of which an event can be made. Within one bucket it is the
    /// last that was put, good or bad: a good one before it is gone by then.
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
        let Contents { judged, unread } = self.read().await?;
        let (first_unread, error) = unread.unzip();
        poured.error = error;
        let capacity = usize::try_from(buffer.capacity().events()).unwrap_or(usize::MAX);
        // One bucket after the other, so that little is repeated where there is no room for all. A
        // key that was left out here is in a later bucket, which is still there.
        for (bucket, entries) in judged {
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
                            return Ok(Fenced::Done(()));
                        }
                    }
                }
                poured.events += events.len() as u64;
                // Now that they go: what stays in its bucket is told of when it does.
                let made = self.pipeline.make(others);
                poured.filtered += made.filtered;
                poured.bad += made.bad;
                let removed = if is_last && is_marked {
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
        Ok(Fenced::Done(()))
    }

    /// What is closed, oldest first, and what is to become of it.
    async fn read(&self) -> Result<Contents, ServiceError> {
        let (mut contents, mut unread, mut unanswered) = (Vec::new(), None, 0);
        for bucket in self.buckets.closed(self.most).await? {
            match self.buckets.read(bucket).await {
                Ok(entries) => {
                    unanswered = 0;
                    contents.push((bucket, entries));
                }
                Err(error) => {
                    let cause: &(dyn Error + 'static) = &error;
                    warn!(%bucket, error = cause, "a bucket cannot be read, and is passed over");
                    let is_answer = error.kind() == ServiceErrorKind::Corrupt;
                    unanswered = if is_answer { 0 } else { unanswered + 1 };
                    unread.get_or_insert((bucket, error));
                    if unanswered == MOST_UNANSWERED {
                        break;
                    }
                }
            }
        }
        let (mut judged, mut replaced) = (Vec::new(), BTreeSet::new());
        let mut unbroken = 0;
        for (bucket, entries) in contents.into_iter().rev() {
            let mut of_bucket = Vec::new();
            for entry in entries {
                unbroken +=
                    ENTRY_BYTES + entry.key.len() + entry.value.as_ref().map_or(0, String::len);
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
                of_bucket.push((entry, judgement));
            }
            judged.push((bucket, of_bucket));
        }
        judged.reverse();
        Ok(Contents { judged, unread })
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

/// After how many buckets in a row of which the store could not say no more are asked for: it is away,
/// and what was read can still be poured.
const MOST_UNANSWERED: u32 = 2;

/// After how much to parse others get their turn: milliseconds, where a lease lasts 100 ms or more.
const UNBROKEN_BYTES: usize = 64 * 1024;

/// What an entry counts for beside its text, since a parser has work with the shortest: so that no
/// more than 256 are judged in a row.
const ENTRY_BYTES: usize = 256;
