//! Reads one shard, from a position to its end: paced, and past every failure that passes.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use crate::aggregate;
use crate::position::{Position, SequenceNumber};
use crate::record::Record;
use crate::shard::{HashKeyRange, Shard, ShardId};
use crate::source::{Fetched, ReadFrom, ShardIterator, Source, SourceError, SourceErrorKind};
use crate::time::now;

/// How a shard's records are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retrieval {
    /// By asking, at most five times a second. All readers of a shard share 2 MB/s.
    #[default]
    Polling,
    /// By having them pushed: enhanced fan-out. Costs extra, and has 2 MB/s of its own.
    FanOut,
}

/// How fast is read by polling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The most records of one fetch: 1 to 10,000.
    pub(crate) most_records: u16,
    /// From a fetch that found nothing more to the next.
    pub(crate) idle: Duration,
}

/// What came of reading on.
#[derive(Debug)]
pub(crate) enum Read {
    /// Records, or none for now.
    Records { records: Vec<Record>, behind: Duration },
    /// No more, ever: the shard is closed, and became these, where the stream tells.
    End { children: Vec<Shard> },
    /// The stream has no such shard any more.
    Gone,
}

/// One shard as it is read.
pub(crate) struct Reader {
    source: Arc<dyn Source>,
    shard: ShardId,
    hash_keys: HashKeyRange,
    retrieval: Retrieval,
    pace: Pace,
    /// Up to and with this, all was returned.
    position: Position,
    /// Where the subscription before went on, as the stream said: it says that also where there is
    /// nothing to read yet.
    continuation: Option<SequenceNumber>,
    place: Place,
    /// Before then, no further fetch.
    next_fetch: Instant,
    /// Before then, no further subscription.
    next_subscription: Instant,
    /// Whether nothing was read since the last iterator expired, or the last subscription ended.
    renewed: bool,
    pauses: Pauses,
}

/// Where reading goes on.
enum Place {
    Unknown,
    Iterator(ShardIterator),
    Subscription(BoxStream<'static, Result<Fetched, SourceError>>),
    End(Vec<Shard>),
}

/// The pauses after failures in a row, and since when there are any.
#[derive(Default)]
struct Pauses(Option<(Instant, backon::ExponentialBackoff)>);

impl Reader {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        shard: ShardId,
        hash_keys: HashKeyRange,
        position: Position,
        retrieval: Retrieval,
        pace: Pace,
    ) -> Self {
        let place = Place::Unknown;
        let (next_fetch, next_subscription, pauses) = (now(), now(), Pauses::default());
        Self {
            source,
            shard,
            hash_keys,
            retrieval,
            pace,
            position,
            continuation: None,
            place,
            next_fetch,
            next_subscription,
            renewed: false,
            pauses,
        }
    }

    /// Reads on, as soon as the stream's limits allow.
    ///
    /// # Cancel safety
    ///
    /// Safe: what is not returned is read again.
    pub(crate) async fn read(&mut self) -> Read {
        loop {
            sleep_until(self.next_fetch).await;
            let failed = match self.step().await {
                Ok(Some(read)) => {
                    self.renewed = false;
                    self.pauses.reset();
                    return read;
                }
                Ok(None) => continue,
                Err(error) => error,
            };
            match failed.kind() {
                SourceErrorKind::NoSuchShard => return Read::Gone,
                // Asked for anew, from the last record that was returned; at once, unless the one
                // that was asked for last has not even been good for one fetch. Of subscriptions it
                // is the same.
                SourceErrorKind::ExpiredIterator if self.renewed => {
                    self.place = Place::Unknown;
                    self.pause(&failed).await;
                }
                SourceErrorKind::ExpiredIterator => {
                    self.place = Place::Unknown;
                    self.renewed = true;
                }
                _ => self.pause(&failed).await,
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Read>, SourceError> {
        let fetched = match &mut self.place {
            Place::Unknown => {
                if self.retrieval == Retrieval::FanOut {
                    sleep_until(self.next_subscription).await;
                    self.next_subscription = now() + BETWEEN_SUBSCRIPTIONS;
                }
                self.place = self.find_place().await?;
                return Ok(None);
            }
            Place::End(children) => {
                return Ok(Some(Read::End { children: std::mem::take(children) }));
            }
            Place::Iterator(iterator) => {
                let begun = now();
                let fetched = self.source.fetch(iterator, self.pace.most_records).await?;
                self.next_fetch = begun + self.pace.until_next(&fetched);
                fetched
            }
            Place::Subscription(pushed) => {
                // It ends by itself after some minutes.
                let ended = || SourceError::new(SourceErrorKind::ExpiredIterator, "no more pushes");
                pushed.next().await.ok_or_else(ended)??
            }
        };
        Ok(Some(self.take(fetched)))
    }

    /// Where to read on after what was returned.
    async fn find_place(&mut self) -> Result<Place, SourceError> {
        let from = match (&self.position, &self.continuation) {
            (Position::ShardEnd, _) => return Ok(Place::End(Vec::new())),
            // At what was returned last, of which a part may be left.
            (Position::Record(number), _) => ReadFrom::At(number.sequence.clone()),
            // Before the first record: the latest is another place by now.
            (_, Some(continuation)) => ReadFrom::At(continuation.clone()),
            (Position::AtTimestamp(at), None) => ReadFrom::Timestamp(*at),
            (Position::TrimHorizon, None) => ReadFrom::TrimHorizon,
            (Position::Latest, None) => ReadFrom::Latest,
        };
        Ok(match self.retrieval {
            Retrieval::Polling => Place::Iterator(self.source.iterator(&self.shard, &from).await?),
            Retrieval::FanOut => {
                Place::Subscription(self.source.subscribe(&self.shard, &from).await?)
            }
        })
    }

    fn take(&mut self, fetched: Fetched) -> Read {
        match (fetched.next, &self.place) {
            (None, _) => self.place = Place::End(fetched.children),
            (Some(next), Place::Subscription(_)) => self.continuation = next.as_str().parse().ok(),
            (Some(next), _) => self.place = Place::Iterator(next),
        }
        let mut records = Vec::with_capacity(fetched.records.len());
        for raw in fetched.records {
            records.extend(aggregate::taken_apart(raw, self.hash_keys));
        }
        // Reading goes on *at* the last sequence number, since an aggregate may have been left half
        // done.
        records.retain(|record| Position::Record(record.number.clone()) > self.position);
        if let Some(last) = records.last() {
            self.position = Position::Record(last.number.clone());
        }
        Read::Records { records, behind: fetched.behind }
    }

    async fn pause(&mut self, error: &SourceError) {
        if matches!(self.place, Place::Subscription(_)) {
            self.place = Place::Unknown;
        }
        let (shard, pause) = (&self.shard, self.pauses.next());
        let passes = error.is_retryable() || self.may_come_to_be(error);
        let lasted = self.pauses.lasted();
        if passes && lasted < LONG {
            debug!(%shard, ?pause, error = error as &dyn Error, "shard not read, trying again");
        } else if passes {
            warn!(%shard, ?lasted, error = error as &dyn Error, "shard not read for long");
        } else {
            let text = "shard cannot be read until somebody mends this";
            warn!(%shard, ?pause, error = error as &dyn Error, "{text}");
        }
        sleep(pause).await;
    }

    /// Whether a refusal passes as time does: where a shard begins at a time, a worker's clock has
    /// written it, and the stream's may be behind that.
    fn may_come_to_be(&self, error: &SourceError) -> bool {
        error.kind() == SourceErrorKind::Refused
            && matches!(self.position, Position::AtTimestamp(_))
            && self.pauses.lasted() < CLOCKS_APART
    }
}

impl Pace {
    /// How long after one fetch the next may begin: five a second, and 2 MB a second, as
    /// [Kinesis' limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html)
    /// have it. What is behind is read without a further pause.
    fn until_next(&self, fetched: &Fetched) -> Duration {
        let bytes: usize = fetched.records.iter().map(|record| record.data.len()).sum();
        #[expect(clippy::cast_precision_loss, reason = "10 MB at most")]
        let paid_off = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        let idle = fetched.records.is_empty() && fetched.behind.is_zero();
        let pause = if idle { self.idle } else { BETWEEN_FETCHES };
        pause.max(BETWEEN_FETCHES).max(paid_off)
    }
}

impl Pauses {
    fn reset(&mut self) {
        self.0 = None;
    }

    fn next(&mut self) -> Duration {
        let (_, series) = self.0.get_or_insert_with(|| {
            let series = backon::ExponentialBuilder::default()
                .with_min_delay(SHORTEST_PAUSE)
                .with_max_delay(LONGEST_PAUSE)
                .without_max_times()
                .with_jitter()
                .build();
            (now(), series)
        });
        series.next().unwrap_or(LONGEST_PAUSE)
    }

    fn lasted(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("shard", &self.shard)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

const BETWEEN_FETCHES: Duration = Duration::from_millis(200);

/// Of one consumer to one shard, as
/// [`SubscribeToShard`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html)
/// has it.
const BETWEEN_SUBSCRIPTIONS: Duration = Duration::from_secs(1);

const BYTES_PER_SECOND: f64 = 2.0 * 1024.0 * 1024.0;

const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// A failure that lasts is somebody's business.
const LONG: Duration = Duration::from_mins(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Clocks that are further apart than this are to be mended.
const CLOCKS_APART: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
