//! Keeps the rows of an application's shards as its streams are.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::{Attempt, Grant, Locker, Written};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::lifecycle::{self, Unneeded};
use crate::names::{ShardName, StreamId};
use crate::position::{InitialPosition, Position};
use crate::processor::ProcessorError;
use crate::repeats::{Repeats, Telling};
use crate::row::{self, ShardRow};
use crate::settings::Settings;
use crate::shard::{Shard, ShardId};
use crate::snapshot::{Snapshot, Stream};
use crate::source::Source;
use crate::time::now;

/// What came of comparing streams and rows. Of several streams, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Compared {
    /// Every shard has its row.
    Same,
    /// Not all could be compared, or made: it is to be done again soon.
    Failed,
    /// There are new rows, or will be at once.
    Changed,
}

/// When a stream was first begun with, in milliseconds since 1970.
enum Start {
    /// Now, by this worker.
    Ours(u64),
    /// By one that has not made all rows.
    Earlier(u64),
    /// A moment ago, by one that is about to make them.
    Another,
}

/// Makes rows for new shards, and removes those that nobody needs.
pub(crate) struct ShardSync {
    settings: Arc<Settings>,
    sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
    unneeded: Mutex<BTreeMap<Option<StreamId>, Watched>>,
    /// The comparisons in a row that failed.
    failures: Mutex<BTreeMap<Option<StreamId>, Repeats>>,
}

/// Since when every look has found it.
#[derive(Debug)]
struct Found {
    since: Instant,
    is_told: bool,
}

/// The rows of a stream that nobody needs.
#[derive(Debug, Default)]
struct Watched {
    /// What every look has found.
    found: BTreeMap<(ShardId, Unneeded), Found>,
    strays: Repeats,
}

impl ShardSync {
    pub(crate) fn new(
        settings: Arc<Settings>,
        sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
    ) -> Self {
        Self { settings, sources, unneeded: Mutex::default(), failures: Mutex::default() }
    }

    pub(crate) fn source(&self, stream: Option<&StreamId>) -> Option<Arc<dyn Source>> {
        self.sources.get(&stream.cloned()).cloned()
    }

    /// Whether a stream has no row yet: then nobody waits for the usual time of a look at it.
    pub(crate) fn is_new_to(&self, snapshot: &Snapshot) -> bool {
        self.sources.keys().any(|stream| !snapshot.streams.contains_key(stream))
    }

    /// Compares all streams with `snapshot`, and makes and removes what the difference asks for.
    ///
    /// Every step is conditional: several workers may do this at once.
    pub(crate) async fn synchronise(&self, snapshot: &Snapshot, locker: &Locker) -> Compared {
        let mut compared = Compared::Same;
        for (stream, source) in &self.sources {
            let none = Stream::default();
            let rows = snapshot.streams.get(stream).unwrap_or(&none);
            match self.follow_stream(stream.as_ref(), &**source, rows, locker).await {
                Ok(of_stream) => {
                    compared = compared.max(of_stream);
                    self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(stream);
                }
                Err(cause) => {
                    compared = compared.max(Compared::Failed);
                    self.tell_of_failure(stream.as_ref(), &*cause);
                }
            }
        }
        compared
    }

    /// It is tried again at the next tick: where nobody mends it, that is every few seconds.
    fn tell_of_failure(&self, stream: Option<&StreamId>, error: &(dyn Error + 'static)) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let telling = failures.entry(stream.cloned()).or_default().once_more();
        let stream = stream.map(tracing::field::display);
        match telling {
            Telling::Quietly => debug!(stream, error, "shards not compared with their rows"),
            Telling::Aloud => warn!(stream, error, "shards not compared with their rows"),
            Telling::AloudThenSeldom => warn!(
                stream,
                error, "shards not compared with their rows; it is tried on, and told seldom"
            ),
        }
    }

    async fn follow_stream(
        &self,
        stream: Option<&StreamId>,
        source: &dyn Source,
        rows: &Stream,
        locker: &Locker,
    ) -> Result<Compared, ProcessorError> {
        let begun = now();
        let listed = source.shards().await?;
        let open = listed.iter().filter(|shard| shard.is_open());
        let gaps = lifecycle::gaps(open.map(|shard| shard.hash_keys));
        if !gaps.is_empty() {
            // The list is of a moment at which a shard was closed and its children were not there.
            return Err(format!("no open shard has the hash keys {gaps:?}").into());
        }
        let mut missing = lifecycle::missing(&listed, &rows.known, self.settings.initial);
        if missing.iter().any(|(_, position)| *position == Position::Latest) {
            match self.start(stream).await? {
                Start::Ours(at) => {
                    let latest = missing.iter_mut().map(|(_, position)| position);
                    latest
                        .filter(|position| **position == Position::Latest)
                        .for_each(|position| *position = Position::AtTimestamp(at));
                }
                // What was open then may be closed now.
                Start::Earlier(at) => {
                    let initial = InitialPosition::AtTimestamp(at);
                    missing = lifecycle::missing(&listed, &rows.known, initial);
                }
                Start::Another => return Ok(Compared::Changed),
            }
        }
        let mut made = false;
        // None of them comes from another, so their order does not matter.
        for some in missing.chunks(ROWS_AT_ONCE) {
            // What is seen may be long past, where this process was paused: a row that was there
            // meanwhile, and was removed at its end, must not be made again.
            if begun.elapsed() > self.settings.options.ttl() {
                return Err("what was seen is long past".into());
            }
            let makes = FuturesUnordered::new();
            for (shard, position) in some {
                makes.push(self.make(stream, shard, position.clone()));
            }
            made |= makes.try_fold(false, async |any, one| Ok(any | one)).await?;
        }
        let unneeded = lifecycle::unneeded(&listed, &rows.known, &missing);
        for row in self.long_unneeded(stream, rows, &unneeded) {
            self.remove(row, locker).await?;
        }
        Ok(if made { Compared::Changed } else { Compared::Same })
    }

    /// Where the first shards of a stream are begun with that is read from its latest record on: the
    /// moment at which somebody first meant to.
    ///
    /// It is written down before any of their rows. So it is the same for all of them, whoever makes
    /// them: what arrives before the last one is made is read, although whoever began may have died
    /// half way.
    async fn start(&self, stream: Option<&StreamId>) -> Result<Start, ProcessorError> {
        let key = self.settings.application.start(stream);
        if let Some(record) = self.settings.table.read(&key).await? {
            return Ok(Start::Earlier(row::start(&record)?));
        }
        let at = (self.settings.wall_clock)();
        let ours = self.settings.table.create(&key, &row::of_start(at)).await?;
        Ok(if ours { Start::Ours(at) } else { Start::Another })
    }

    /// Those of the rows that nobody needs which nobody has needed for longer than anybody may still
    /// be about to make them; or, of strays, than it takes to see what is wrong.
    fn long_unneeded<'a>(
        &self,
        stream: Option<&StreamId>,
        rows: &'a Stream,
        unneeded: &BTreeSet<(ShardId, Unneeded)>,
    ) -> Vec<&'a ShardRow> {
        let mut watched = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        let Watched { found, strays } = watched.entry(stream.cloned()).or_default();
        found.retain(|known, _| unneeded.contains(known));
        let mut long = Vec::new();
        for known @ (shard, why) in unneeded {
            let Some(row) = rows.rows.get(shard) else { continue };
            let found = found.entry(known.clone()).or_insert_with(Found::now);
            let known_for = found.since.elapsed();
            let ttl = self.settings.options.ttl();
            // The list of shards may be older than what is known of its ends, for a moment.
            let (told_after, patience) = match why {
                Unneeded::Succeeded => (None, Some(ttl * 2)),
                Unneeded::Stray => (Some(Duration::ZERO), Some(PATIENCE_WITH_STRAYS)),
                Unneeded::Foreign => (Some(Duration::ZERO), None),
                Unneeded::ReadElsewhere => (Some(ttl), None),
            };
            if !found.is_told && told_after.is_some_and(|after| known_for >= after) {
                found.is_told = true;
                if strays.once_more() != Telling::Quietly {
                    tell_of_stray(row, *why, patience);
                }
            }
            if patience.is_some_and(|patience| known_for > patience) {
                long.push(row);
            }
        }
        long
    }

    /// Makes rows for what the shard of `row`, which is held under `grant`, was split or merged
    /// into: `told` by the stream; or else, or where that leaves out children or parents, found in
    /// its list. An error where that does not have all of them yet.
    pub(crate) async fn follow(
        &self,
        grant: &Grant,
        row: &ShardRow,
        told: Vec<Shard>,
    ) -> Result<BTreeSet<ShardId>, ProcessorError> {
        let mut children = told;
        let all_told = lifecycle::is_succeeded(&row.shard, row.hash_keys, &children)
            && children.iter().all(|child| lifecycle::names_its_parents(child, row.hash_keys));
        if !all_told {
            let source = self.source(row.stream.as_ref()).ok_or("no source for this stream")?;
            children = source.shards().await?;
            if !lifecycle::is_succeeded(&row.shard, row.hash_keys, &children) {
                return Err("not all that it became is listed yet".into());
            }
            children.retain(|shard| shard.parents.contains(&row.shard));
        }
        let mut with_rows = BTreeSet::from([&row.shard]);
        for parent in children.iter().flat_map(|child| &child.parents) {
            if !with_rows.contains(parent) && self.has_row(row.stream.as_ref(), parent).await? {
                with_rows.insert(parent);
            }
        }
        for child in children.iter().filter(|child| lifecycle::may_be_made(child, &with_rows)) {
            let position = lifecycle::of_descendant(self.settings.initial);
            self.make(row.stream.as_ref(), child, position).await?;
        }
        let children: BTreeSet<_> = children.into_iter().map(|child| child.id).collect();
        match self.settings.table.update(grant, &row::became(&children)).await? {
            Written::Applied => Ok(children),
            lost => Err(format!("the row was not changed: {lost:?}").into()),
        }
    }

    async fn has_row(
        &self,
        stream: Option<&StreamId>,
        shard: &ShardId,
    ) -> Result<bool, ProcessorError> {
        let name = ShardName { stream: stream.cloned(), shard: shard.clone() };
        let row = self.settings.table.read(&self.settings.application.shard(&name)).await?;
        Ok(row.is_some())
    }

    async fn make(
        &self,
        stream: Option<&StreamId>,
        shard: &Shard,
        checkpoint: Position,
    ) -> Result<bool, ProcessorError> {
        let name = ShardName { stream: stream.cloned(), shard: shard.id.clone() };
        let key = self.settings.application.shard(&name);
        let attributes = row::of_new(shard, &checkpoint);
        let mut failures = 0;
        // One refusal must not hold up all that come after.
        let made = loop {
            match self.settings.table.create(&key, &attributes).await {
                Ok(made) => break made,
                Err(cause) if cause.is_retryable() && failures < MOST_RETRIES => {
                    failures += 1;
                    sleep(BETWEEN_TRIES * failures).await;
                }
                Err(cause) => return Err(cause.into()),
            }
        };
        if made {
            info!(shard = %shard.id, %checkpoint, "row made for a shard");
        }
        Ok(made)
    }

    async fn remove(&self, row: &ShardRow, locker: &Locker) -> Result<(), ProcessorError> {
        // Whoever holds it, does so for a reason.
        let Attempt::Obtained(lease) = locker.obtain(&row.key).await? else { return Ok(()) };
        let deleted = self.settings.table.delete(lease.grant()).await?;
        let (key, checkpoint) = (&row.key, &row.checkpoint);
        info!(%key, %checkpoint, ?deleted, "row of a shard that nobody needs any more removed");
        Ok(())
    }
}

impl Found {
    fn now() -> Self {
        Self { since: now(), is_told: false }
    }
}

fn tell_of_stray(row: &ShardRow, why: Unneeded, removed_after: Option<Duration>) {
    let (key, checkpoint) = (&row.key, &row.checkpoint);
    if why == Unneeded::ReadElsewhere {
        warn!(
            %key, %checkpoint,
            "a shard is open and, says its row, read to its end: that was another stream's, and this \
             one is not read before somebody deletes the row"
        );
    } else {
        warn!(
            %key, %checkpoint, ?removed_after,
            "a row is of no shard that the stream lists: is this the stream that is meant?"
        );
    }
}

/// For which every look finds a row that is of no shard of the stream, before it goes. A wrong name
/// of a stream is noticed by then, since nothing arrives, and the checkpoints are there when it is
/// corrected; what the stream has dropped is of no use, and does no harm for so long.
const PATIENCE_WITH_STRAYS: Duration = Duration::from_hours(1);

const MOST_RETRIES: u32 = 3;

const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// More would be many writes at once, to a table that has done nothing yet.
const ROWS_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests;
