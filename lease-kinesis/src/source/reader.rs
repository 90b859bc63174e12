//! Reads one shard from a position to its end: paces the requests, and retries temporary failures.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use crate::position::{Position, SequenceNumber};
use crate::record::Record;
use crate::shard::{HashKeyRange, Shard, ShardId};
use crate::source::aggregate;
use crate::source::{Fetched, ReadFrom, ShardIterator, Source, SourceError, SourceErrorKind};
use crate::time::now;

/// Selects how a worker retrieves records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retrieval {
    /// Polls, at most five times a second. All readers of a shard share 2 MB/s.
    #[default]
    Polling,
    /// Subscribes: enhanced fan-out. It costs extra, and each consumer has 2 MB/s of its own.
    FanOut,
}

/// The size and the pause of polls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The maximum number of records of one fetch: 1 to 10,000.
    pub(crate) most_records: u16,
    /// The pause after a fetch that reached the end of the available records.
    pub(crate) idle: Duration,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Read {
    /// Records; empty if none has arrived.
    Records { records: Vec<Record>, behind: Duration },
    /// The end of a closed shard, and its children, if the stream reports them.
    End { children: Vec<Shard> },
    /// The stream no longer has the shard.
    Gone,
}

/// Reads one shard.
pub(crate) struct Reader {
    source: Arc<dyn Source>,
    shard: ShardId,
    hash_keys: HashKeyRange,
    retrieval: Retrieval,
    pace: Pace,
    /// All records up to and including this position were returned.
    position: Position,
    /// The sequence number at which the next subscription continues. Kinesis reports this number with every
    /// push, even while the shard has no records.
    continuation: Option<SequenceNumber>,
    cursor: Cursor,
    /// The earliest time of the next fetch.
    next_fetch: Instant,
    /// The earliest time of the next subscription.
    next_subscription: Instant,
    /// Whether the reader has renewed the iterator or subscription, and has read nothing since.
    renewed: bool,
    backoff: Backoff,
}

/// The iterator or subscription for the next read, or the end of the shard.
enum Cursor {
    Unknown,
    Iterator(ShardIterator),
    Subscription(BoxStream<'static, Result<Fetched, SourceError>>),
    End(Vec<Shard>),
}

/// The backoff after consecutive failures, and the time of the first failure.
#[derive(Default)]
struct Backoff(Option<(Instant, backon::ExponentialBackoff)>);

impl Reader {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        shard: ShardId,
        hash_keys: HashKeyRange,
        position: Position,
        retrieval: Retrieval,
        pace: Pace,
    ) -> Self {
        let cursor = Cursor::Unknown;
        let (next_fetch, next_subscription, backoff) = (now(), now(), Backoff::default());
        Self {
            source,
            shard,
            hash_keys,
            retrieval,
            pace,
            position,
            continuation: None,
            cursor,
            next_fetch,
            next_subscription,
            renewed: false,
            backoff,
        }
    }

    /// Returns the next records, an empty answer or the end, as soon as the stream's rate limits allow.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call returns the records that a dropped call did not return.
    pub(crate) async fn read(&mut self) -> Read {
        loop {
            sleep_until(self.next_fetch).await;
            let failed = match self.step().await {
                Ok(Some(read)) => {
                    self.renewed = false;
                    self.backoff.reset();
                    return read;
                }
                Ok(None) => continue,
                Err(error) => error,
            };
            match failed.kind() {
                SourceErrorKind::NoSuchShard => return Read::Gone,
                // The reader renews an expired iterator or an ended subscription at once, from the last
                // returned record. If no read has succeeded since the last renewal, the reader pauses
                // before it renews again.
                SourceErrorKind::ExpiredIterator if self.renewed => {
                    self.cursor = Cursor::Unknown;
                    self.pause(&failed).await;
                }
                SourceErrorKind::ExpiredIterator => {
                    self.cursor = Cursor::Unknown;
                    self.renewed = true;
                }
                _ => self.pause(&failed).await,
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Read>, SourceError> {
        let fetched = match &mut self.cursor {
            Cursor::Unknown => {
                if self.retrieval == Retrieval::FanOut {
                    sleep_until(self.next_subscription).await;
                    self.next_subscription = now() + BETWEEN_SUBSCRIPTIONS;
                }
                self.cursor = self.open_cursor().await?;
                return Ok(None);
            }
            Cursor::End(children) => {
                return Ok(Some(Read::End { children: std::mem::take(children) }));
            }
            Cursor::Iterator(iterator) => {
                let begun = now();
                let fetched = self.source.fetch(iterator, self.pace.most_records).await?;
                self.next_fetch = begun + self.pace.until_next(&fetched);
                fetched
            }
            Cursor::Subscription(pushed) => {
                // Kinesis ends a subscription after some minutes.
                let ended = || SourceError::new(SourceErrorKind::ExpiredIterator, "no more pushes");
                pushed.next().await.ok_or_else(ended)??
            }
        };
        Ok(Some(self.take(fetched)))
    }

    /// Opens a cursor after the last returned record.
    async fn open_cursor(&mut self) -> Result<Cursor, SourceError> {
        let from = match (&self.position, &self.continuation) {
            (Position::ShardEnd, _) => return Ok(Cursor::End(Vec::new())),
            // Starts at the last returned record, because more records of the same aggregate may follow.
            (Position::Record(number), _) => ReadFrom::At(number.sequence.clone()),
            // No record was returned yet. A new start at `Latest` would skip records that arrived in between.
            (_, Some(continuation)) => ReadFrom::At(continuation.clone()),
            (Position::AtTimestamp(at), None) => ReadFrom::Timestamp(*at),
            (Position::TrimHorizon, None) => ReadFrom::TrimHorizon,
            (Position::Latest, None) => ReadFrom::Latest,
        };
        Ok(match self.retrieval {
            Retrieval::Polling => Cursor::Iterator(self.source.iterator(&self.shard, &from).await?),
            Retrieval::FanOut => {
                Cursor::Subscription(self.source.subscribe(&self.shard, &from).await?)
            }
        })
    }

    fn take(&mut self, fetched: Fetched) -> Read {
        match (fetched.next, &self.cursor) {
            (None, _) => self.cursor = Cursor::End(fetched.children),
            (Some(next), Cursor::Subscription(_)) => self.continuation = next.as_str().parse().ok(),
            (Some(next), _) => self.cursor = Cursor::Iterator(next),
        }
        let mut records = Vec::with_capacity(fetched.records.len());
        for raw in fetched.records {
            records.extend(aggregate::deaggregate(raw, self.hash_keys));
        }
        // The cursor started at the last returned record, so the source returns this record again.
        records.retain(|record| Position::Record(record.number.clone()) > self.position);
        if let Some(last) = records.last() {
            self.position = Position::Record(last.number.clone());
        }
        Read::Records { records, behind: fetched.behind }
    }

    async fn pause(&mut self, error: &SourceError) {
        if matches!(self.cursor, Cursor::Subscription(_)) {
            self.cursor = Cursor::Unknown;
        }
        let (shard, pause) = (&self.shard, self.backoff.next());
        let passes = error.is_retryable() || self.is_clock_difference(error);
        let lasted = self.backoff.lasted();
        if passes && lasted < LONG {
            debug!(%shard, ?pause, error = error as &dyn Error, "shard read failed, retrying");
        } else if passes {
            warn!(%shard, ?lasted, error = error as &dyn Error, "shard read has failed for a long time");
        } else {
            warn!(
                %shard, ?pause, error = error as &dyn Error,
                "shard read fails until an operator corrects the cause"
            );
        }
        sleep(pause).await;
    }

    /// Reports whether the stream may have rejected the start time because its clock is behind the
    /// clock of the worker that set the time. If the difference is small, a later attempt succeeds.
    fn is_clock_difference(&self, error: &SourceError) -> bool {
        error.kind() == SourceErrorKind::Refused
            && matches!(self.position, Position::AtTimestamp(_))
            && self.backoff.lasted() < CLOCKS_APART
    }
}

impl Pace {
    /// Returns the time from the start of one fetch to the next. It allows five fetches and 2 MB a second, by
    /// [Kinesis'
    /// limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html). A
    /// reader that is behind the newest record makes no further pause.
    fn until_next(&self, fetched: &Fetched) -> Duration {
        let bytes: usize = fetched.records.iter().map(|record| record.data.len()).sum();
        #[expect(clippy::cast_precision_loss, reason = "10 MB at most")]
        let paid_off = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        let idle = fetched.records.is_empty() && fetched.behind.is_zero();
        let pause = if idle { self.idle } else { BETWEEN_FETCHES };
        pause.max(BETWEEN_FETCHES).max(paid_off)
    }
}

impl Backoff {
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

/// The limit for one consumer and one shard, from the documentation of
/// [`SubscribeToShard`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html).
const BETWEEN_SUBSCRIPTIONS: Duration = Duration::from_secs(1);

const BYTES_PER_SECOND: f64 = 2.0 * 1024.0 * 1024.0;

const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// A failure that lasts longer is logged as a warning, because an operator may have to correct it.
const LONG: Duration = Duration::from_mins(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// An operator must correct a larger clock difference.
const CLOCKS_APART: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
