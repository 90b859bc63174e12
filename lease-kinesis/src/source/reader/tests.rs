use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

use super::*;
use crate::position::{RecordNumber, SequenceNumber};
use crate::source::RawRecord;

/// A closed shard. Each fetch returns one record.
#[derive(Debug)]
struct RecordedShard {
    records: Vec<RawRecord>,
    /// An iterator or a subscription ends after this number of fetches.
    lifetime: usize,
    fetches: AtomicUsize,
    subscribed: Mutex<Vec<Instant>>,
}

impl RecordedShard {
    /// Records 8 and 10 are plain. Record 9 is an aggregate of three records.
    fn new() -> Self {
        let record = |sequence, data| RawRecord {
            sequence: number(sequence),
            partition_key: "key".into(),
            data,
            arrived: None,
        };
        let aggregate = Bytes::from_static(THREE);
        let plain = Bytes::from_static(b"plain");
        let records = vec![record(8, plain.clone()), record(9, aggregate), record(10, plain)];
        let (fetches, subscribed) = (AtomicUsize::new(0), Mutex::default());
        Self { records, lifetime: usize::MAX, fetches, subscribed }
    }

    fn find(&self, from: &ReadFrom) -> usize {
        match from {
            ReadFrom::At(sequence) => {
                self.records.iter().take_while(|record| record.sequence < *sequence).count()
            }
            ReadFrom::TrimHorizon => 0,
            other => panic!("{other:?}"),
        }
    }

    fn at(&self, index: usize) -> Fetched {
        Fetched {
            records: self.records.get(index).cloned().into_iter().collect(),
            next: (index < self.records.len()).then(|| iterator(index + 1)),
            ..Fetched::default()
        }
    }
}

#[async_trait]
impl Source for RecordedShard {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        panic!("a reader lists no shards")
    }

    async fn iterator(&self, _: &ShardId, from: &ReadFrom) -> Result<ShardIterator, SourceError> {
        self.fetches.store(0, Ordering::Relaxed);
        Ok(iterator(self.find(from)))
    }

    async fn fetch(&self, iterator: &ShardIterator, _: u16) -> Result<Fetched, SourceError> {
        if self.fetches.fetch_add(1, Ordering::Relaxed) >= self.lifetime {
            return Err(SourceError::new(SourceErrorKind::ExpiredIterator, "too old"));
        }
        Ok(self.at(iterator.as_str().parse().unwrap()))
    }

    async fn subscribe(
        &self,
        _: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        self.subscribed.lock().unwrap().push(now());
        let answers = (self.find(from)..=self.records.len()).take(self.lifetime);
        let answers: Vec<_> = answers.map(|index| Ok(self.at(index))).collect();
        Ok(futures_util::stream::iter(answers).boxed())
    }
}

fn iterator(index: usize) -> ShardIterator {
    ShardIterator::new(index.to_string())
}

fn number(number: u32) -> SequenceNumber {
    number.to_string().parse().unwrap()
}

fn record(sequence: u32, sub_sequence: u64) -> Position {
    Position::Record(RecordNumber { sequence: number(sequence), sub_sequence })
}

fn reader<S: Source>(source: &Arc<S>, position: Position, retrieval: Retrieval) -> Reader {
    let pace = Pace { most_records: 1, idle: Duration::from_secs(1) };
    let shard = "shardId-000000000000".parse().unwrap();
    let source: Arc<dyn Source> = Arc::<S>::clone(source);
    Reader::new(source, shard, HashKeyRange::ALL, position, retrieval, pace)
}

async fn read_on(tape: RecordedShard, position: Position, retrieval: Retrieval) -> Vec<String> {
    let mut reader = reader(&Arc::new(tape), position, retrieval);
    let mut numbers = Vec::new();
    loop {
        match reader.read().await {
            Read::Records { records, .. } => {
                numbers.extend(records.iter().map(|record| record.number.to_string()));
            }
            Read::End { .. } => return numbers,
            Read::Gone => panic!("the shard is there"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn aggregate_is_read_in_order() {
    let numbers = read_on(RecordedShard::new(), Position::TrimHorizon, Retrieval::Polling).await;

    assert_eq!(numbers, ["8", "9", "9+1", "9+2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn partly_read_aggregate_is_resumed() {
    let numbers = read_on(RecordedShard::new(), record(9, 0), Retrieval::Polling).await;

    assert_eq!(numbers, ["9+1", "9+2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn finished_aggregate_is_not_read_again() {
    let numbers = read_on(RecordedShard::new(), record(9, 2), Retrieval::Polling).await;

    assert_eq!(numbers, ["10"]);
}

#[tokio::test(start_paused = true)]
async fn read_after_plain_record_omits_it() {
    let numbers = read_on(RecordedShard::new(), record(8, 0), Retrieval::Polling).await;

    assert_eq!(numbers, ["9", "9+1", "9+2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn read_after_missing_index_returns_next_record() {
    let numbers = read_on(RecordedShard::new(), record(7, 3), Retrieval::Polling).await;

    assert_eq!(numbers, ["8", "9", "9+1", "9+2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn fan_out_resumes_inside_aggregate() {
    let numbers = read_on(RecordedShard::new(), record(9, 1), Retrieval::FanOut).await;

    assert_eq!(numbers, ["9+2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn expired_iterators_lose_and_repeat_no_record() {
    // Each new iterator returns the last record again, then the next record.
    let tape = RecordedShard { lifetime: 2, ..RecordedShard::new() };

    let numbers = read_on(tape, Position::TrimHorizon, Retrieval::Polling).await;

    assert_eq!(numbers, ["8", "9", "9+1", "9+2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn ended_subscriptions_lose_and_repeat_no_record() {
    let tape = RecordedShard { lifetime: 2, ..RecordedShard::new() };

    let numbers = read_on(tape, Position::TrimHorizon, Retrieval::FanOut).await;

    assert_eq!(numbers, ["8", "9", "9+1", "9+2", "10"]);
}

#[test]
fn no_pause_exceeds_the_longest() {
    let mut backoff = Backoff::default();

    let longest = (0..1_000).map(|_| backoff.next()).max().unwrap();

    assert!(longest > LONGEST_PAUSE / 2, "{longest:?} has no jitter");
    assert!(longest <= LONGEST_PAUSE, "{longest:?}");
}

/// A shard whose first record arrives after the end of the first subscription.
#[derive(Debug, Default)]
struct QuietShard(Mutex<Vec<ReadFrom>>);

#[async_trait]
impl Source for QuietShard {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        panic!("a reader lists no shards")
    }

    async fn iterator(&self, _: &ShardId, _: &ReadFrom) -> Result<ShardIterator, SourceError> {
        panic!("this shard is not polled")
    }

    async fn fetch(&self, _: &ShardIterator, _: u16) -> Result<Fetched, SourceError> {
        panic!("this shard is not polled")
    }

    async fn subscribe(
        &self,
        _: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        let pushed = match from {
            ReadFrom::At(_) => RecordedShard::new().at(0),
            _ => Fetched { next: Some(iterator(7)), ..Fetched::default() },
        };
        self.0.lock().unwrap().push(from.clone());
        Ok(futures_util::stream::iter([Ok(pushed)]).boxed())
    }
}

/// Records that arrive between two subscriptions have larger numbers.
#[tokio::test(start_paused = true)]
async fn subscription_without_records_continues_at_its_end() {
    for (begin, asked) in
        [(Position::Latest, ReadFrom::Latest), (Position::AtTimestamp(5), ReadFrom::Timestamp(5))]
    {
        let quiet = Arc::new(QuietShard::default());
        let mut reader = reader(&quiet, begin, Retrieval::FanOut);

        for expected in [None, Some("8".to_owned())] {
            let Read::Records { records, .. } = reader.read().await else { panic!("no records") };
            assert_eq!(records.first().map(|record| record.number.to_string()), expected);
        }

        assert_eq!(*quiet.0.lock().unwrap(), [asked, ReadFrom::At(number(7))]);
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_are_one_second_apart() {
    let tape = Arc::new(RecordedShard { lifetime: 2, ..RecordedShard::new() });
    let mut reader = reader(&tape, Position::TrimHorizon, Retrieval::FanOut);

    while !matches!(reader.read().await, Read::End { .. }) {}

    let subscribed = tape.subscribed.lock().unwrap();
    assert!(subscribed.len() > 2);
    let pauses = subscribed.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(pauses.min() >= Some(Duration::from_secs(1)), "{subscribed:?}");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_that_end_at_once_back_off() {
    let tape = Arc::new(RecordedShard { lifetime: 0, ..RecordedShard::new() });
    let mut reader = reader(&tape, Position::TrimHorizon, Retrieval::FanOut);

    let read = timeout(Duration::from_mins(1), reader.read()).await;

    assert!(read.is_err());
    let subscribed = tape.subscribed.lock().unwrap().len();
    assert!((5..=15).contains(&subscribed), "{subscribed} subscriptions in a minute");
}

#[tokio::test(start_paused = true)]
async fn future_start_counts_as_clock_difference_for_a_minute() {
    let reader = |position| reader(&Arc::new(RecordedShard::new()), position, Retrieval::Polling);
    let refused = SourceError::new(SourceErrorKind::Refused, "in the future");
    let denied = SourceError::new(SourceErrorKind::Denied, "not for you");
    let mut at_a_time = reader(Position::AtTimestamp(5));

    assert!(at_a_time.is_clock_difference(&refused));
    assert!(!at_a_time.is_clock_difference(&denied));
    assert!(
        !reader(record(8, 0)).is_clock_difference(&refused),
        "a position that is a sequence number does not depend on clocks"
    );
    let begun = now();
    while begun.elapsed() < Duration::from_mins(1) {
        assert!(at_a_time.is_clock_difference(&refused));
        at_a_time.pause(&refused).await;
    }
    assert!(!at_a_time.is_clock_difference(&refused));
}

/// The aggregate `two-keys` of `aggregate/golden.txt`.
const THREE: &[u8] = b"\xf3\x89\x9a\xc2\x0a\x01a\x0a\x01b\x1a\x09\x08\x00\x1a\x05first\
    \x1a\x0a\x08\x01\x1a\x06second\x1a\x09\x08\x00\x1a\x05third\x73\
    \x77\xd8\xbb\xa5\xc8\x3b\xe4\x02\x93\x17\x62\x8d\xba\xa4\xda";
