//! One listing of an application's rows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::error::Error;

use futures_util::StreamExt;
use lease_core::store::{LeaseRecord, LeaseTable, Parent};
use lease_core::{LeaseKey, Lessee, StoreError, StoreErrorKind};
use tracing::{debug, warn};

use crate::log_throttle::{LogLevel, LogThrottles};
use crate::names::{Application, RowName, ShardName, StreamId};
use crate::plan::fleet;
use crate::plan::{Member, Reshaping};
use crate::position::Position;
use crate::table::lifecycle::{self, Rows};
use crate::table::row::ShardRow;

#[derive(Debug, Default, Clone)]
pub(crate) struct Snapshot {
    /// The workers that hold the lease of their own row.
    pub(crate) members: Vec<Member>,
    /// The leases of these workers' own rows. A shard under another session is free.
    sessions: HashSet<Parent>,
    pub(crate) streams: BTreeMap<Option<StreamId>, Stream>,
    pub(crate) rows: usize,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Stream {
    pub(crate) rows: BTreeMap<crate::shard::ShardId, ShardRow>,
    pub(crate) row_states: Rows,
}

impl Snapshot {
    /// Fails if the store did not list all rows, because a partial list leads to a wrong plan. Skips
    /// unreadable rows.
    pub(crate) async fn take(
        table: &dyn LeaseTable,
        application: &Application,
        unreadable: &mut LogThrottles,
    ) -> Result<Self, StoreError> {
        let mut snapshot = Self::default();
        let prefix = application.prefix();
        let mut records = table.list(&prefix);
        while let Some(record) = records.next().await {
            snapshot.rows += 1;
            let record = match record {
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    log_unreadable(unreadable, None, &error, "the row is skipped");
                    continue;
                }
                record => record?,
            };
            match application.row(&record.key) {
                Some(RowName::Worker(_)) => snapshot.add_worker(&record),
                Some(RowName::Shard(name)) => snapshot.put(&name, Some(record), unreadable),
                None => (),
            }
        }
        Ok(snapshot)
    }

    fn add_worker(&mut self, record: &LeaseRecord) {
        let Some(member) = fleet::member(record) else { return };
        self.members.push(member);
        self.sessions.extend(record.token.map(|token| Parent::new(record.key.clone(), token)));
    }

    /// Whether the holder of `row` may still hold the shard, according to this list.
    pub(crate) fn is_live(&self, row: &ShardRow) -> bool {
        row.session.as_ref().is_none_or(|session| self.sessions.contains(session))
    }

    /// Replaces the row of one shard. `None` removes the row. An unreadable row is removed, too.
    pub(crate) fn put(
        &mut self,
        name: &ShardName,
        record: Option<LeaseRecord>,
        unreadable: &mut LogThrottles,
    ) {
        let read = record.and_then(|record| {
            let key = record.key.clone();
            let read = ShardRow::read(name.clone(), record);
            read.inspect_err(|error| {
                log_unreadable(unreadable, Some(&key), error, "its shard is skipped");
            })
            .ok()
        });
        match read {
            Some(row) => self.streams.entry(row.stream.clone()).or_default().add(row),
            None => self.remove(name),
        }
    }

    fn remove(&mut self, ShardName { stream, shard }: &ShardName) {
        let Some(rows) = self.streams.get_mut(stream) else { return };
        rows.rows.remove(shard);
        rows.row_states.remove(shard);
        if rows.rows.is_empty() {
            self.streams.remove(stream);
        }
    }

    pub(crate) fn row(&self, name: &ShardName) -> Option<&ShardRow> {
        self.streams.get(&name.stream)?.rows.get(&name.shard)
    }

    pub(crate) fn row_mut(&mut self, name: &ShardName) -> Option<&mut ShardRow> {
        self.streams.get_mut(&name.stream)?.rows.get_mut(&name.shard)
    }

    pub(crate) fn all_rows(&self) -> impl Iterator<Item = &ShardRow> {
        self.streams.values().flat_map(|stream| stream.rows.values())
    }

    /// Returns the holders of all shards that have not ended and wait for no parent. A shard whose holder
    /// does not pass `is_live` is free.
    pub(crate) fn placement(
        &self,
        is_live: impl Fn(&ShardRow) -> bool,
    ) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let streams = self.streams.values();
        let rows = streams.flat_map(|stream| stream.rows.values().map(move |row| (stream, row)));
        rows.filter(|(stream, row)| stream.may_be_read(row))
            .map(|(_, row)| (row.key.clone(), row.holder.clone().filter(|_| is_live(row))))
            .collect()
    }

    /// Returns, for each readable shard, the parents whose rows are not in this listing. A listing has
    /// several pages, so a parent's row may have been created after its page was read.
    pub(crate) fn unlisted_parents(
        &self,
        application: &Application,
    ) -> BTreeMap<LeaseKey, Vec<LeaseKey>> {
        let mut unlisted = BTreeMap::new();
        for stream in self.streams.values() {
            for row in stream.rows.values().filter(|row| stream.may_be_read(row)) {
                let parents = row.parents.iter().filter(|id| !stream.row_states.contains_key(*id));
                let keys: Vec<_> = parents
                    .map(|shard| ShardName { stream: row.stream.clone(), shard: shard.clone() })
                    .map(|name| application.shard(&name))
                    .collect();
                if !keys.is_empty() {
                    unlisted.insert(row.key.clone(), keys);
                }
            }
        }
        unlisted
    }

    /// Omits shards that workers of other libraries hold, because those workers do not follow the plan.
    pub(crate) fn reshaping(&self) -> Reshaping {
        let mut reshaping = Reshaping::default();
        for stream in self.streams.values() {
            let parents: BTreeSet<_> = stream.rows.values().flat_map(|row| &row.parents).collect();
            let open = stream.rows.values().filter(|row| row.checkpoint != Position::ShardEnd);
            let open = open.filter(|row| !row.is_foreign);
            for row in open {
                if parents.contains(&row.shard) {
                    reshaping.ending.insert(row.key.clone());
                } else {
                    reshaping.waiting += usize::from(!stream.may_be_read(row));
                }
            }
        }
        reshaping
    }

    pub(crate) fn foreign(&self) -> BTreeSet<LeaseKey> {
        self.all_rows().filter(|row| row.is_foreign).map(|row| row.key.clone()).collect()
    }

    /// Returns the holders of all rows. Ended shards are included.
    pub(crate) fn owners(&self) -> BTreeMap<LeaseKey, Lessee> {
        self.all_rows().filter_map(|row| Some((row.key.clone(), row.holder.clone()?))).collect()
    }
}

impl Stream {
    fn add(&mut self, row: ShardRow) {
        self.row_states.insert(row.shard.clone(), row.row_state());
        self.rows.insert(row.shard.clone(), row);
    }

    fn may_be_read(&self, row: &ShardRow) -> bool {
        row.checkpoint != Position::ShardEnd
            && self
                .row_states
                .get(&row.shard)
                .is_some_and(|shard| lifecycle::may_be_read(shard, &self.row_states))
    }
}

pub(crate) fn log_unreadable(
    unreadable: &mut LogThrottles,
    key: Option<&LeaseKey>,
    error: &StoreError,
    consequence: &str,
) {
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let what = format!("{}{error}{source}", key.map_or("", LeaseKey::as_str));
    let key = key.map(tracing::field::display);
    let error = error as &dyn Error;
    match unreadable.once_more(&what) {
        LogLevel::Warn => warn!(key, error, "row cannot be read: {consequence}"),
        LogLevel::WarnThenRarely => {
            warn!(
                key,
                error, "row cannot be read: {consequence}; further failures are logged rarely"
            );
        }
        LogLevel::Debug => debug!(key, error, "row cannot be read: {consequence}"),
    }
}

#[cfg(test)]
mod tests;
