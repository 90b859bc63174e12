//! Tests that collect from large buckets, and after errors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::{
    Bucket, BucketSource, BucketStore, Entry, Exporter, Fenced, Intake, Piece, Pipeline, PutIn,
    ServiceError, ServiceErrorKind,
};
use serde_json::Map;
use tokio::task::yield_now;

use crate::collecting::{CLOSED, put};
use crate::world::{MINUTE, Minutes, World, everywhere_with_buckets, minutes, run};

everywhere_with_buckets! {
    bucket_of_large_values_moves_in_small_steps
    unreadable_bucket_blocks_neither_others_nor_pending_events
    unavailable_buckets_block_no_pending_events
    store_failing_half_way_is_not_read_per_bucket
    neighbouring_buckets_that_time_out_block_no_other
}

#[derive(Debug)]
struct Watched {
    inner: Arc<dyn BucketStore>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Removals of whole buckets are not recorded.
    removed: Vec<usize>,
    removals_left: Option<usize>,
    read: Vec<Bucket>,
    unreadable: BTreeMap<Bucket, ServiceErrorKind>,
    are_away: bool,
    away_from: Option<Bucket>,
    pieces: Vec<usize>,
}

impl Watched {
    fn new(inner: &Arc<dyn BucketStore>) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), seen: Mutex::default() })
    }

    fn removal(&self, keys: usize) -> Result<(), ServiceError> {
        let mut seen = self.seen.lock().unwrap();
        if let Some(left) = &mut seen.removals_left {
            *left = left.checked_sub(1).ok_or_else(|| failure(ServiceErrorKind::Unavailable))?;
        }
        seen.removed.push(keys);
        Ok(())
    }

    fn answers(&self) -> Result<(), ServiceError> {
        if self.seen.lock().unwrap().are_away {
            return Err(failure(ServiceErrorKind::Unavailable));
        }
        Ok(())
    }
}

fn failure(kind: ServiceErrorKind) -> ServiceError {
    ServiceError::new("bucket store", kind, "injected fault")
}

#[async_trait]
impl BucketStore for Watched {
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError> {
        self.inner.put(changes).await
    }

    async fn closed(&self, most: usize) -> Result<Vec<Bucket>, ServiceError> {
        self.answers()?;
        self.inner.closed(most).await
    }

    async fn read(
        &self,
        bucket: Bucket,
        from: Option<&str>,
        bytes: usize,
    ) -> Result<Piece, ServiceError> {
        let unreadable = {
            let mut seen = self.seen.lock().unwrap();
            seen.read.push(bucket);
            seen.are_away |= seen.away_from == Some(bucket);
            seen.unreadable.get(&bucket).copied()
        };
        self.answers()?;
        if let Some(kind) = unreadable {
            return Err(failure(kind));
        }
        let piece = self.inner.read(bucket, from, bytes).await?;
        let bytes = piece.entries.iter().map(Entry::bytes).sum();
        self.seen.lock().unwrap().pieces.push(bytes);
        Ok(piece)
    }

    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.inner.remove(token, buckets).await
    }

    async fn remove_keys(
        &self,
        token: FencingToken,
        bucket: Bucket,
        keys: &[&str],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.removal(keys.len())?;
        self.inner.remove_keys(token, bucket, keys).await
    }

    async fn list(
        &self,
        range: RangeInclusive<Bucket>,
    ) -> Result<Vec<(Bucket, u64)>, ServiceError> {
        self.inner.list(range).await
    }

    async fn marker(&self) -> Result<Option<Bucket>, ServiceError> {
        self.answers()?;
        self.inner.marker().await
    }

    async fn intake(&self) -> Result<Intake, ServiceError> {
        self.answers()?;
        self.inner.intake().await
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        self.inner.set_intake(intake).await
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        self.inner.clear().await
    }
}

fn verbatim() -> Pipeline {
    Pipeline::new(|_, value| Ok([("value".to_owned(), value.into())].into_iter().collect()))
}

async fn exporter(world: &World, buckets: &Arc<Watched>, pipeline: Pipeline) -> Exporter {
    let source = BucketSource::new(Arc::clone(buckets) as Arc<dyn BucketStore>, pipeline);
    world.enabled().await.with_source(source)
}

fn arrivals(world: &World) -> BTreeMap<String, usize> {
    let mut arrivals = BTreeMap::new();
    for id in world.sink.ids() {
        *arrivals.entry(id.to_string()).or_default() += 1;
    }
    arrivals
}

async fn bucket_of_large_values_moves_in_small_steps(world: World, mut minutes: Minutes) {
    let buckets = Watched::new(&minutes.buckets);
    let exporter = exporter(&world, &buckets, verbatim()).await;
    // The values need more than four steps. The largest value alone exceeds a step.
    let large = "x".repeat(900_000);
    for number in 0..20 {
        put(&minutes, &[(&format!("key-{number:02}"), Some(&large))]).await;
    }
    put(&minutes, &[("key-11-larger", Some(&"x".repeat(5_000_000)))]).await;
    minutes.pass(CLOSED).await;
    buckets.seen.lock().unwrap().removals_left = Some(2);

    let failed = run(&exporter).await;
    buckets.seen.lock().unwrap().removals_left = None;
    let exported = run(&exporter).await;

    assert!(failed.source_error.is_some());
    // Four large values fit into a step. The store decides the order of the pieces.
    let removed = buckets.seen.lock().unwrap().removed.clone();
    assert!(removed.iter().all(|keys| (1..=4).contains(keys)), "{removed:?}");
    let moved_at_first: usize = removed.iter().take(2).sum();
    assert_eq!(exported.collected, 21 - moved_at_first as u64);
    // The event that is too large counts twice if the removal of its piece failed.
    assert!((1..=2).contains(&(failed.too_large + exported.too_large)));
    let twice: Vec<_> = arrivals(&world).into_iter().filter(|(_, times)| *times > 1).collect();
    assert!(twice.len() <= 4, "more than one step: {twice:?}");
    assert_eq!(arrivals(&world).len(), 20);
    // One piece of 23 MB would take as much memory as the whole bucket.
    let pieces = buckets.seen.lock().unwrap().pieces.clone();
    assert!(pieces.iter().all(|bytes| *bytes <= (8 << 20) + 5_000_200), "{pieces:?}");
}

/// Each bucket also has the key `all`.
async fn fill(minutes: &mut Minutes, keys: &[&str]) -> Vec<Bucket> {
    let mut filled = Vec::new();
    for key in keys {
        filled
            .push(Bucket::starting_at(put(minutes, &[(key, Some("1")), ("all", Some("1"))]).await));
        minutes.pass(MINUTE).await;
    }
    minutes.pass(CLOSED).await;
    filled
}

async fn all(minutes: &Minutes) -> Vec<Bucket> {
    let listed = minutes.buckets.list(Bucket::MIN..=Bucket::MAX).await.unwrap();
    listed.into_iter().map(|(bucket, _)| bucket).collect()
}

async fn unreadable_bucket_blocks_neither_others_nor_pending_events(
    world: World,
    mut minutes: Minutes,
) {
    let buckets = Watched::new(&minutes.buckets);
    let exporter = exporter(&world, &buckets, verbatim()).await;
    world.append(2).await;
    let filled = fill(&mut minutes, &["a", "b", "c", "d"]).await;
    let unreadable = BTreeMap::from([(filled[1], ServiceErrorKind::Corrupt)]);
    buckets.seen.lock().unwrap().unreadable = unreadable;

    let exported = run(&exporter).await;

    assert_eq!((exported.collected, exported.sent), (4, 6));
    assert_eq!(exported.source_error.unwrap().kind(), ServiceErrorKind::Corrupt);
    // If the marker passed the bucket, no job would read the bucket later.
    assert_eq!(minutes.buckets.marker().await.unwrap(), Some(filled[0]));
    assert_eq!(all(&minutes).await, [filled[1]]);

    buckets.seen.lock().unwrap().unreadable.clear();
    let mended = run(&exporter).await;
    assert_eq!((mended.collected, mended.sent), (2, 2));
    assert!(mended.source_error.is_none());
    assert_eq!(all(&minutes).await, []);
    assert!(arrivals(&world).into_values().all(|times| times == 1));
}

async fn unavailable_buckets_block_no_pending_events(world: World, minutes: Minutes) {
    let buckets = Watched::new(&minutes.buckets);
    let exporter = exporter(&world, &buckets, verbatim()).await.with_min_per_job(9);
    world.append(2).await;
    buckets.seen.lock().unwrap().are_away = true;

    let _scheduled = exporter.schedule_job().await.unwrap();
    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert_eq!(world.arrived(), [1, 2]);
    let said = worked.to_string();
    let expected = "2 events sent, some buckets not collected (bucket store did not answer: \
                    injected fault)";
    assert!(said.ends_with(expected), "{said}");
}

async fn store_failing_half_way_is_not_read_per_bucket(world: World, mut minutes: Minutes) {
    let buckets = Watched::new(&minutes.buckets);
    let exporter = exporter(&world, &buckets, verbatim()).await;
    let filled = fill(&mut minutes, &["a", "b", "c", "d", "e"]).await;
    buckets.seen.lock().unwrap().away_from = Some(filled[1]);

    let exported = run(&exporter).await;

    assert_eq!(buckets.seen.lock().unwrap().read, filled[..2]);
    assert_eq!((exported.collected, exported.sent), (2, 2));
    assert_eq!(exported.source_error.unwrap().kind(), ServiceErrorKind::Unavailable);
    assert_eq!(all(&minutes).await, filled[1..]);
}

async fn neighbouring_buckets_that_time_out_block_no_other(world: World, mut minutes: Minutes) {
    let buckets = Watched::new(&minutes.buckets);
    let exporter = exporter(&world, &buckets, verbatim()).await;
    let filled = fill(&mut minutes, &["a", "b", "c", "d", "e"]).await;
    let silent = filled[1..=2].iter().map(|bucket| (*bucket, ServiceErrorKind::Unavailable));
    buckets.seen.lock().unwrap().unreadable = silent.collect();

    let exported = run(&exporter).await;

    let ids: BTreeSet<_> = arrivals(&world).into_keys().collect();
    let expected = [(0, "a"), (3, "d"), (4, "e"), (4, "all")];
    let expected = expected.map(|(place, key)| format!("{}/{key}", filled[place]));
    assert_eq!(ids, expected.into_iter().collect());
    assert_eq!(exported.source_error.unwrap().kind(), ServiceErrorKind::Unavailable);
    assert_eq!(all(&minutes).await, filled[1..=2]);

    buckets.seen.lock().unwrap().unreadable.clear();
    assert_eq!(run(&exporter).await.collected, 3);
    assert_eq!(all(&minutes).await, []);
}

/// Parses three buckets of `count` entries. Returns the largest number of entries parsed without a
/// yield.
async fn parsed_in_a_row(count: usize, value: &str) -> usize {
    let (world, mut minutes) = (World::in_memory(), Minutes::in_memory(minutes()).await);
    let turns = Arc::new(AtomicUsize::new(0));
    let taken = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            taken.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    let parsed = Arc::new(Mutex::new(BTreeMap::<usize, usize>::new()));
    let counted = Arc::clone(&parsed);
    let pipeline = Pipeline::new(move |_, _| {
        *counted.lock().unwrap().entry(turns.load(Ordering::Relaxed)).or_default() += 1;
        Ok(Map::new())
    });
    let exporter = exporter(&world, &Watched::new(&minutes.buckets), pipeline).await;
    let keys: Vec<_> = (0..count).map(|number| format!("key-{number}")).collect();
    for round in 0..3 {
        let keys: Vec<_> = keys.iter().map(|key| format!("{key}-{round}")).collect();
        let changes: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(value))).collect();
        let _put = minutes.buckets.put(&changes).await.unwrap();
        minutes.pass(MINUTE).await;
    }
    minutes.pass(CLOSED).await;

    let exported = run(&exporter).await;

    other.abort();
    assert_eq!(exported.collected, 3 * count as u64);
    parsed.lock().unwrap().values().copied().max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn parsing_many_entries_yields() {
    let in_a_row = parsed_in_a_row(5_000, "1").await;

    assert!(in_a_row <= 256, "{in_a_row}");
}

#[tokio::test(start_paused = true)]
async fn parsing_long_values_yields() {
    let in_a_row = parsed_in_a_row(20, &"x".repeat(60_000)).await;

    assert!(in_a_row <= 2, "{in_a_row}");
}
