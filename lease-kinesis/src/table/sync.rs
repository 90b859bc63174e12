//! Keeps the rows of an application in sync with the shards of its streams.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{TryFutureExt, TryStreamExt};
use lease_core::store::within;
use lease_core::{Attempt, Lease, LeaseKey, Locker, StoreError, Written};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::log_throttle::{LogLevel, LogThrottle};
use crate::names::{ShardName, StreamId};
use crate::position::{InitialPosition, Position};
use crate::settings::Settings;
use crate::shard::{Shard, ShardId};
use crate::source::Source;
use crate::table::ended_rows::EndedRows;
use crate::table::lifecycle::{self, Obsolete};
use crate::table::row::{self, ShardRow};
use crate::table::snapshot::{Snapshot, Stream};
use crate::time::now;

/// If two streams have different results, the later of these variants counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncResult {
    Unchanged,
    /// A stream did not list its shards, or a row was not created. The next sync is due soon.
    Failed,
    /// New rows were created, or another worker will soon create rows.
    Changed,
}

type SyncError = Box<dyn Error + Send + Sync>;

/// The start time of a stream, in milliseconds since 1970.
enum Start {
    Ours(u64),
    /// Another worker stored the start time, but has not created all rows.
    Earlier(u64),
    /// Another worker stored the start time a moment ago, and will now create the rows.
    Another,
}

pub(crate) struct ShardSync {
    settings: Arc<Settings>,
    sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
    obsolete: Mutex<BTreeMap<Option<StreamId>, ObsoleteRows>>,
    failures: Mutex<BTreeMap<Option<StreamId>, LogThrottle>>,
    /// The rows that syncs have created.
    created: Mutex<Vec<LeaseKey>>,
    ended: EndedRows,
}

/// The time since which all syncs have found a row obsolete.
#[derive(Debug)]
struct ObsoleteSince {
    since: Instant,
    is_logged: bool,
}

#[derive(Debug, Default)]
struct ObsoleteRows {
    found: BTreeMap<(ShardId, Obsolete), ObsoleteSince>,
    strays: LogThrottle,
}

impl ShardSync {
    pub(crate) fn new(
        settings: Arc<Settings>,
        sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
    ) -> Self {
        let (obsolete, failures, created, ended) = Default::default();
        Self { settings, sources, obsolete, failures, created, ended }
    }

    /// The rows that syncs have created since the last call, even if a sync failed later.
    pub(crate) fn take_created(&self) -> Vec<LeaseKey> {
        std::mem::take(&mut self.created.lock())
    }

    pub(crate) fn ended(&self) -> &EndedRows {
        &self.ended
    }

    pub(crate) fn source(&self, stream: Option<&StreamId>) -> Option<Arc<dyn Source>> {
        self.sources.get(&stream.cloned()).cloned()
    }

    /// The first sync of a new stream is due at once.
    pub(crate) fn is_new_to(&self, snapshot: &Snapshot) -> bool {
        self.sources.keys().any(|stream| !snapshot.streams.contains_key(stream))
    }

    /// Every write is conditional, so several workers may sync at once.
    pub(crate) async fn synchronise(&self, snapshot: &Snapshot, locker: &Locker) -> SyncResult {
        let mut result = SyncResult::Unchanged;
        for (stream, source) in &self.sources {
            let none = Stream::default();
            let rows = snapshot.streams.get(stream).unwrap_or(&none);
            match self.follow_stream(stream.as_ref(), &**source, rows, locker).await {
                Ok(of_stream) => {
                    result = result.max(of_stream);
                    self.failures.lock().remove(stream);
                }
                Err(cause) => {
                    result = result.max(SyncResult::Failed);
                    self.log_failure(stream.as_ref(), &*cause);
                }
            }
        }
        result
    }

    /// The worker retries a failed sync every few seconds.
    fn log_failure(&self, stream: Option<&StreamId>, error: &(dyn Error + 'static)) {
        let mut failures = self.failures.lock();
        let level = failures.entry(stream.cloned()).or_default().once_more();
        let stream = stream.map(tracing::field::display);
        match level {
            LogLevel::Debug => debug!(stream, error, "sync of shards failed"),
            LogLevel::Warn => warn!(stream, error, "sync of shards failed"),
            LogLevel::WarnThenRarely => {
                warn!(stream, error, "sync of shards failed; further failures are logged rarely");
            }
        }
    }

    async fn follow_stream(
        &self,
        stream: Option<&StreamId>,
        source: &dyn Source,
        rows: &Stream,
        locker: &Locker,
    ) -> Result<SyncResult, SyncError> {
        let started = now();
        let listed = source.shards().await?;
        let open = listed.iter().filter(|shard| shard.is_open());
        let gaps = lifecycle::gaps(open.map(|shard| shard.hash_keys));
        if !gaps.is_empty() {
            return Err(format!("no open shard has the hash keys {gaps:?}").into());
        }
        let mut missing = lifecycle::missing(&listed, &rows.row_states, self.settings.initial);
        if missing.iter().any(|(_, position)| *position == Position::Latest) {
            match self.start(stream).await? {
                Start::Ours(at) => {
                    let latest = missing.iter_mut().map(|(_, position)| position);
                    latest
                        .filter(|position| **position == Position::Latest)
                        .for_each(|position| *position = Position::AtTimestamp(at));
                }
                // Shards that were open at the start time may be closed now. They need rows, too.
                Start::Earlier(at) => {
                    let initial = InitialPosition::AtTimestamp(at);
                    missing = lifecycle::missing(&listed, &rows.row_states, initial);
                }
                Start::Another => return Ok(SyncResult::Changed),
            }
        }
        let mut created = false;
        // No missing shard descends from another missing shard, so their order does not matter.
        for some in missing.chunks(CONCURRENT_ROWS) {
            // After a pause of this process, another worker may have created and removed the row.
            if started.elapsed() > self.settings.options.ttl() {
                return Err("the snapshot is older than a ttl".into());
            }
            let creates = FuturesUnordered::new();
            for (shard, position) in some {
                let create = self.create_row(stream, shard, position.clone());
                creates.push(create.map_ok(|created| (created, &shard.id)));
            }
            let note = async |any, (is_new, shard): (bool, &ShardId)| {
                if is_new {
                    let name = ShardName { stream: stream.cloned(), shard: shard.clone() };
                    self.created.lock().push(self.settings.application.shard(&name));
                }
                Ok(any | is_new)
            };
            created |= creates.try_fold(false, note).await?;
        }
        let obsolete = lifecycle::obsolete(&listed, &rows.row_states, &missing);
        for row in self.removable(stream, rows, &obsolete) {
            self.remove_row(row, locker).await?;
        }
        Ok(if created { SyncResult::Changed } else { SyncResult::Unchanged })
    }

    /// Returns the start time of a stream whose initial position is `Latest`. The time is stored before the
    /// first row. So all first shards start at the same time, even if the first worker crashes.
    async fn start(&self, stream: Option<&StreamId>) -> Result<Start, SyncError> {
        let key = self.settings.application.start(stream);
        if let Some(record) = self.answer(self.settings.table.read(&key)).await? {
            return Ok(Start::Earlier(row::start(&record)?));
        }
        let at = (self.settings.wall_clock)();
        let start = row::start_row(at);
        let ours = self.answer(self.settings.table.create(&key, &start)).await?;
        Ok(if ours { Start::Ours(at) } else { Start::Another })
    }

    /// After an earlier removal, a worker with an older listing could create a row again. Logs stray rows.
    fn removable<'a>(
        &self,
        stream: Option<&StreamId>,
        rows: &'a Stream,
        obsolete: &BTreeSet<(ShardId, Obsolete)>,
    ) -> Vec<&'a ShardRow> {
        let mut obsolete_rows = self.obsolete.lock();
        let ObsoleteRows { found, strays } = obsolete_rows.entry(stream.cloned()).or_default();
        found.retain(|entry, _| obsolete.contains(entry));
        let mut removable = Vec::new();
        for entry @ (shard, why) in obsolete {
            let Some(row) = rows.rows.get(shard) else { continue };
            let found = found.entry(entry.clone()).or_insert_with(ObsoleteSince::now);
            let age = found.since.elapsed();
            let ttl = self.settings.options.ttl();
            // An old list of shards may show an ended shard as open for a ttl.
            let (logged_after, retention) = match why {
                Obsolete::Succeeded => (None, Some(ttl * 2)),
                Obsolete::Stray => (Some(Duration::ZERO), Some(STRAY_RETENTION)),
                Obsolete::Foreign => (Some(Duration::ZERO), None),
                Obsolete::ReadElsewhere => (Some(ttl), None),
            };
            if !found.is_logged && logged_after.is_some_and(|after| age >= after) {
                found.is_logged = true;
                if strays.once_more() != LogLevel::Debug {
                    log_stray(row, *why, retention);
                }
            }
            if retention.is_some_and(|retention| age > retention) {
                removable.push(row);
            }
        }
        removable
    }

    /// Creates the rows of the children of `row`'s shard. Uses the list of shards if the report `reported`
    /// lacks children or parents. Fails if the list does not have all children yet.
    pub(crate) async fn follow(
        &self,
        lease: &Lease,
        row: &ShardRow,
        reported: Vec<Shard>,
    ) -> Result<BTreeSet<ShardId>, SyncError> {
        let mut children = reported;
        let is_complete = lifecycle::is_succeeded(&row.shard, row.hash_keys, &children)
            && children.iter().all(|child| lifecycle::names_all_parents(child, row.hash_keys));
        if !is_complete {
            let source = self.source(row.stream.as_ref()).ok_or("no source for this stream")?;
            children = source.shards().await?;
            if !lifecycle::is_succeeded(&row.shard, row.hash_keys, &children) {
                return Err("not all children are listed yet".into());
            }
            children.retain(|shard| shard.parents.contains(&row.shard));
        }
        let mut with_rows = BTreeSet::from([&row.shard]);
        for parent in children.iter().flat_map(|child| &child.parents) {
            if !with_rows.contains(parent) && self.has_row(row.stream.as_ref(), parent).await? {
                with_rows.insert(parent);
            }
        }
        for child in children.iter().filter(|child| lifecycle::may_be_created(child, &with_rows)) {
            let position = lifecycle::of_descendant(self.settings.initial);
            self.create_row(row.stream.as_ref(), child, position).await?;
        }
        let children: BTreeSet<_> = children.into_iter().map(|child| child.id).collect();
        let change = row::children_change(&children);
        match lease.update(&*self.settings.table, &change).await? {
            Written::Applied => Ok(children),
            lost => Err(format!("the row was not changed: {lost:?}").into()),
        }
    }

    async fn has_row(&self, stream: Option<&StreamId>, shard: &ShardId) -> Result<bool, SyncError> {
        let name = ShardName { stream: stream.cloned(), shard: shard.clone() };
        let key = self.settings.application.shard(&name);
        let row = self.answer(self.settings.table.read(&key)).await?;
        Ok(row.is_some())
    }

    /// Waits no longer than the request timeout.
    async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.settings.options.request_timeout(), answer).await
    }

    async fn create_row(
        &self,
        stream: Option<&StreamId>,
        shard: &Shard,
        checkpoint: Position,
    ) -> Result<bool, SyncError> {
        let name = ShardName { stream: stream.cloned(), shard: shard.id.clone() };
        let key = self.settings.application.shard(&name);
        let attributes = row::new_row(shard, &checkpoint);
        let mut failures = 0;
        // Without a retry, one failed request would delay all later rows until the next sync.
        let created = loop {
            match self.answer(self.settings.table.create(&key, &attributes)).await {
                Ok(created) => break created,
                Err(cause) if cause.is_retryable() && failures < MAX_RETRIES => {
                    failures += 1;
                    sleep(RETRY_PAUSE * failures).await;
                }
                Err(cause) => return Err(cause.into()),
            }
        };
        if created {
            info!(shard = %shard.id, %checkpoint, "row created for a shard");
        }
        Ok(created)
    }

    async fn remove_row(&self, row: &ShardRow, locker: &Locker) -> Result<(), SyncError> {
        let lease = match self.ended.take(&row.key) {
            Some(lease) => lease,
            None => match locker.obtain(&row.key).await? {
                Attempt::Obtained(lease) => lease,
                // If another worker holds the row, the row may still be needed.
                Attempt::Held(_) => return Ok(()),
            },
        };
        let deleted = lease.delete(Arc::clone(&self.settings.table)).await?;
        let (key, checkpoint) = (&row.key, &row.checkpoint);
        info!(%key, %checkpoint, ?deleted, "obsolete row removed");
        Ok(())
    }
}

impl ObsoleteSince {
    fn now() -> Self {
        Self { since: now(), is_logged: false }
    }
}

fn log_stray(row: &ShardRow, why: Obsolete, removed_after: Option<Duration>) {
    let (key, checkpoint) = (&row.key, &row.checkpoint);
    if why == Obsolete::ReadElsewhere {
        warn!(
            %key, %checkpoint,
            "row of an open shard says that it was read to its end, in another stream; this shard is not \
            read until an operator deletes the row"
        );
    } else {
        warn!(
            %key, %checkpoint, ?removed_after,
            "row belongs to no listed shard; check the name of the stream"
        );
    }
}

/// Long enough for an operator to notice a wrong stream name while the checkpoints still exist.
const STRAY_RETENTION: Duration = Duration::from_hours(1);

const MAX_RETRIES: u32 = 3;

const RETRY_PAUSE: Duration = Duration::from_millis(100);

const CONCURRENT_ROWS: usize = 16;

#[cfg(test)]
mod tests;
