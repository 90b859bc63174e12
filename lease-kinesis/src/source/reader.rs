//! Reads one shard from a position to its end.

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
use crate::status::StatusEntry;
use crate::time::now;

/// Selects how a worker retrieves records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retrieval {
    /// Polls, at most five times a second. All readers of a shard share 2 MB/s.
    #[default]
    Polling,
    /// Subscribes (enhanced fan-out). A subscription costs extra. Each consumer has 2 MB/s of its own.
    FanOut,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The maximum number of records of one fetch: 1 to 10,000.
    pub(crate) most_records: u16,
    pub(crate) idle: Duration,
}

#[derive(Debug)]
pub(crate) enum Read {
    /// The list is empty if no record has arrived.
    Records { records: Vec<Record>, behind: Duration },
    /// The end of a closed shard, and its children, if the stream reports them.
    End { children: Vec<Shard> },
    /// The stream no longer has the shard.
    Gone,
}

pub(crate) struct Reader {
    source: Arc<dyn Source>,
    shard: ShardId,
    hash_keys: HashKeyRange,
    retrieval: Retrieval,
    pace: Pace,
    /// All records up to and including this position were returned.
    position: Position,
    /// Kinesis reports the start of the next subscription with every push.
    continuation: Option<SequenceNumber>,
    cursor: Cursor,
    next_fetch: Instant,
    next_subscription: Instant,
    /// Whether the reader has read nothing since the last renewal of the cursor.
    renewed: bool,
    backoff: Backoff,
    /// Reports failed reads.
    entry: Option<StatusEntry>,
}

enum Cursor {
    Unknown,
    Iterator(ShardIterator),
    Subscription(BoxStream<'static, Result<Fetched, SourceError>>),
    End(Vec<Shard>),
}

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
            entry: None,
        }
    }

    pub(crate) fn reporting_to(mut self, entry: StatusEntry) -> Self {
        self.entry = Some(entry);
        self
    }

    /// Cancel safe: the next call returns the same records.
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
            self.report(failed.kind());
            match failed.kind() {
                SourceErrorKind::NoSuchShard => return Read::Gone,
                // If no read has succeeded since the last renewal, the reader pauses before it renews again.
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

    fn report(&self, kind: SourceErrorKind) {
        let is_subscription = matches!(self.cursor, Cursor::Subscription(_));
        // Kinesis ends a subscription after some minutes.
        if kind == SourceErrorKind::ExpiredIterator && is_subscription {
            return;
        }
        if let Some(entry) = &self.entry {
            entry.read_failed(kind);
        }
    }

    async fn open_cursor(&mut self) -> Result<Cursor, SourceError> {
        let from = match (&self.position, &self.continuation) {
            (Position::ShardEnd, _) => return Ok(Cursor::End(Vec::new())),
            // More records of the same aggregate may follow the last returned record.
            (Position::Record(number), _) => ReadFrom::At(number.sequence.clone()),
            // No record was returned yet. A new start at `Latest` would skip records.
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

    /// Reports whether the stream may have rejected a start time that is in the future by the stream's clock.
    /// If the clocks differ little, a later attempt succeeds.
    fn is_clock_difference(&self, error: &SourceError) -> bool {
        error.kind() == SourceErrorKind::Refused
            && matches!(self.position, Position::AtTimestamp(_))
            && self.backoff.lasted() < CLOCKS_APART
    }
}

impl Pace {
    /// Returns the time between two fetches. It allows five fetches and 2 MB a second, by [Kinesis'
    /// limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html). A reader that
    /// is behind the newest record makes no further pause.
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
                // The jitter adds up to the same length.
                .with_max_delay(LONGEST_PAUSE / 2)
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

/// This limit is in the documentation of
/// [`SubscribeToShard`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html).
const BETWEEN_SUBSCRIPTIONS: Duration = Duration::from_secs(1);

const BYTES_PER_SECOND: f64 = 2.0 * 1024.0 * 1024.0;

const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// A failure that lasts longer is logged as a warning.
const LONG: Duration = Duration::from_mins(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// An operator must correct a larger clock difference.
const CLOCKS_APART: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
