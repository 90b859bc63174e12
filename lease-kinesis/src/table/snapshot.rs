//! What a worker sees at a tick: all rows of its application.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use futures_util::StreamExt;
use lease_core::{LeaseKey, LeaseTable, Lessee, StoreError, StoreErrorKind};
use tracing::{debug, warn};

use crate::fleet;
use crate::lifecycle::{self, Rows};
use crate::names::{Application, RowName, ShardName, StreamId};
use crate::plan::{Member, Reshaping};
use crate::position::Position;
use crate::repeats::{RepeatsOfEach, Telling};
use crate::row::ShardRow;

/// All rows of an application, as they were a moment ago.
#[derive(Debug, Default, Clone)]
pub(crate) struct Snapshot {
    /// Those whose lease is held.
    pub(crate) members: Vec<Member>,
    pub(crate) streams: BTreeMap<Option<StreamId>, Stream>,
    /// How many rows were read.
    pub(crate) rows: usize,
}

/// The shards of one stream.
#[derive(Debug, Default, Clone)]
pub(crate) struct Stream {
    pub(crate) rows: BTreeMap<crate::shard::ShardId, ShardRow>,
    pub(crate) known: Rows,
}

impl Snapshot {
    /// Reads all rows.
    ///
    /// # Errors
    ///
    /// Where the store could not say: nothing is concluded from a part of them. A row that cannot
    /// be understood is told of, as often as `unreadable` allows, and left alone, together with its
    /// shard.
    pub(crate) async fn take(
        table: &dyn LeaseTable,
        application: &Application,
        unreadable: &mut RepeatsOfEach,
    ) -> Result<Self, StoreError> {
        let mut snapshot = Self::default();
        let prefix = application.prefix();
        let mut records = table.list(&prefix);
        while let Some(record) = records.next().await {
            snapshot.rows += 1;
            let record = match record {
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    tell(unreadable, None, &error, "whatever it is of is left alone");
                    continue;
                }
                record => record?,
            };
            match application.row(&record.key) {
                Some(RowName::Worker(_)) => snapshot.members.extend(fleet::member(&record)),
                Some(RowName::Shard(name)) => {
                    let key = record.key.clone();
                    match ShardRow::read(name, record) {
                        Ok(row) => snapshot.streams.entry(row.stream.clone()).or_default().add(row),
                        Err(error) => {
                            tell(unreadable, Some(&key), &error, "its shard is left alone");
                        }
                    }
                }
                None => (),
            }
        }
        Ok(snapshot)
    }

    /// Who holds each shard that can be read now: neither at its end, nor waiting for another.
    pub(crate) fn placement(&self) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let streams = self.streams.values();
        let rows = streams.flat_map(|stream| stream.rows.values().map(move |row| (stream, row)));
        rows.filter(|(stream, row)| stream.may_be_read(row))
            .map(|(_, row)| (row.key.clone(), row.holder.clone()))
            .collect()
    }

    /// The parents without a row of each shard that can be read now, by key.
    ///
    /// A list of rows is not of one moment: a parent's row may have been made after its page was
    /// read, and before the page of its child. Each is read by itself before its child is claimed.
    pub(crate) fn unlisted_parents(
        &self,
        application: &Application,
    ) -> BTreeMap<LeaseKey, Vec<LeaseKey>> {
        let mut unlisted = BTreeMap::new();
        for stream in self.streams.values() {
            for row in stream.rows.values().filter(|row| stream.may_be_read(row)) {
                let parents = row.parents.iter().filter(|id| !stream.known.contains_key(*id));
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

    /// What was split or merged and has not ended, and what waits for that; of both what is not
    /// another library's, whose workers plan for themselves.
    pub(crate) fn reshaping(&self) -> Reshaping {
        let mut reshaping = Reshaping::default();
        for stream in self.streams.values() {
            let parents: BTreeSet<_> = stream.rows.values().flat_map(|row| &row.parents).collect();
            let open = stream.rows.values().filter(|row| row.checkpoint != Position::ShardEnd);
            #[cfg(feature = "kcl")]
            let open = open.filter(|row| !row.is_of_kcl);
            for row in open {
                if parents.contains(&row.shard) {
                    reshaping.passing.insert(row.key.clone());
                } else {
                    reshaping.coming += usize::from(!stream.may_be_read(row));
                }
            }
        }
        reshaping
    }

    /// Which of these workers of the Kinesis Client Library have.
    #[cfg(feature = "kcl")]
    pub(crate) fn of_kcl(&self) -> BTreeSet<LeaseKey> {
        let rows = self.streams.values().flat_map(|stream| stream.rows.values());
        rows.filter(|row| row.is_of_kcl).map(|row| row.key.clone()).collect()
    }
}

impl Stream {
    fn add(&mut self, row: ShardRow) {
        self.known.insert(row.shard.clone(), row.known());
        self.rows.insert(row.shard.clone(), row);
    }

    fn may_be_read(&self, row: &ShardRow) -> bool {
        row.checkpoint != Position::ShardEnd
            && self
                .known
                .get(&row.shard)
                .is_some_and(|shard| lifecycle::may_be_read(shard, &self.known))
    }
}

/// That a row cannot be read, and what comes of that.
fn tell(
    unreadable: &mut RepeatsOfEach,
    key: Option<&LeaseKey>,
    error: &StoreError,
    consequence: &str,
) {
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let what = format!("{}{error}{source}", key.map_or("", LeaseKey::as_str));
    let key = key.map(tracing::field::display);
    let error = error as &dyn Error;
    match unreadable.once_more(&what) {
        Telling::Aloud => warn!(key, error, "a row cannot be read: {consequence}"),
        Telling::AloudThenSeldom => {
            warn!(key, error, "a row cannot be read: {consequence}, and it is told seldom");
        }
        Telling::Quietly => debug!(key, error, "a row cannot be read: {consequence}"),
    }
}

#[cfg(test)]
mod tests;
