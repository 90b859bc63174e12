//! Reads the rows that may have changed: the rows of workers, and the rows of shards.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use lease_core::store::{LeaseRecord, within};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use tokio::time::Instant;
use tracing::debug;

use super::pace::time_of_all;
use super::roster::{News, UnreadRow};
use super::{MOST_READS, View};
use crate::log_throttle::LogThrottles;
use crate::table::snapshot::{Snapshot, log_unreadable};
use crate::time::now;
use crate::worker::parts::WorkerParts;

/// Whose rows a worker reads next, if it is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Workers,
    Shards,
}

/// Whether a worker has read all rows that others have reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    Partial,
}

impl View {
    /// Reads rows that other workers have changed, as far as the pace allows. Returns whether this worker has now read
    /// all of them. A caller may drop the call: a later call, or the next look, reads the rest.
    pub(crate) async fn catch_up(
        &mut self,
        worker: &WorkerParts,
        reading: &BTreeSet<LeaseKey>,
        unreadable: &mut LogThrottles,
    ) -> Result<Progress, StoreError> {
        let Some((own, _)) = self.own.clone() else { return Ok(Progress::Done) };
        let others = self.roster.unread(&own).others;
        let workers = self.in_turn(others);
        self.read_workers(worker, workers, reading, unreadable).await?;
        let keys = self.next_noticed().into_iter().collect();
        self.read_shards(worker, reading, unreadable, keys).await?;
        Ok(if self.next_read().is_some() { Progress::Partial } else { Progress::Done })
    }

    /// When to read further rows that other workers have changed.
    pub(crate) fn next_read(&self) -> Option<Instant> {
        (self.late_since.is_some() || self.rows.noticed() > 0).then(|| self.pace.next())
    }

    /// The last audit has found rows that this worker had not read. If no notice of the same change has arrived
    /// since, the notice was lost, and other workers lack it, too. A notice may be in a row that is not read yet.
    pub(super) fn report_missed(&mut self, worker: &WorkerParts) {
        if self.late_since.is_some() {
            return;
        }
        for key in std::mem::take(&mut self.unreported) {
            debug!(%key, "row had changed without a notice");
            self.notice(worker, &key);
        }
    }

    /// The workers whose own rows to read now. They come before the shards, so that the notices of a giver and of a
    /// receiver cost one read of the shard. If the worker is late for long, more rows change than it can read. Then
    /// workers and shards take turns.
    pub(super) fn in_turn(&mut self, mut workers: Vec<UnreadRow>) -> Vec<UnreadRow> {
        let sessions = self.roster.sessions();
        let is_long = |since: Instant| since.elapsed() > time_of_all(sessions);
        let is_overloaded = self.late_since.is_some_and(is_long) && self.rows.noticed() > 0;
        self.turn = match self.turn {
            Turn::Workers if is_overloaded => Turn::Shards,
            _ => Turn::Workers,
        };
        let most = match self.turn {
            Turn::Workers => self.pace.take(workers.len(), sessions),
            Turn::Shards => 0,
        };
        let is_late = workers.len() > most;
        self.late_since = is_late.then(|| self.late_since.unwrap_or_else(now));
        workers.truncate(most);
        if let Some((last, _)) = workers.last() {
            self.roster.end_turn(last);
        }
        workers
    }

    /// Reads the own rows of `workers`, and takes over their notices.
    pub(super) async fn read_workers(
        &mut self,
        worker: &WorkerParts,
        workers: Vec<UnreadRow>,
        reading: &BTreeSet<LeaseKey>,
        unreadable: &mut LogThrottles,
    ) -> Result<(), StoreError> {
        let (table, limit) = (&*worker.settings.table, worker.settings.options.request_timeout());
        self.rows_read += workers.len();
        let read = workers.into_iter().map(|(id, key)| async move {
            let record = within(limit, table.read(&key)).await;
            (id, key, record)
        });
        let mut read = futures_util::stream::iter(read).buffer_unordered(CONCURRENT_READS);
        while let Some((id, key, record)) = read.next().await {
            let record = match record {
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    log_unreadable(unreadable, Some(&key), &error, NO_MEMBER);
                    self.roster.skip(&id);
                    continue;
                }
                record => record?,
            };
            // At once, because the caller may drop this call.
            let news = self.roster.read(&id, record.as_ref(), &worker.settings.application);
            self.take_news(news, reading);
        }
        Ok(())
    }

    pub(super) fn take_news(&mut self, news: News, reading: &BTreeSet<LeaseKey>) {
        let shards = match news {
            News::None => return,
            News::Gap => return self.is_behind = true,
            News::Shards(shards) => shards,
            // The rows show which of them have ended, and their children. Other shards that the session has held are
            // free, or were reported by other workers. An audit finds all else.
            News::UnreadEnd(session) => self.rows.held_under(&session),
        };
        for key in shards {
            self.unreported.remove(&key);
            // Only the row shows that this worker has lost the shard.
            if reading.contains(&key) {
                self.rows.doubt(key);
            } else {
                self.rows.notice(key);
            }
        }
    }

    /// The reported shards whose rows to read now.
    pub(super) fn next_noticed(&mut self) -> Vec<LeaseKey> {
        if self.late_since.is_some() && self.turn == Turn::Workers {
            return Vec::new();
        }
        let most = self.pace.take(self.rows.noticed(), self.roster.sessions());
        self.rows.next_noticed(most)
    }

    /// Reads the own rows of workers without a session. Such a worker counts nothing, so its row and the shards that
    /// it may obtain are read at each tick.
    pub(super) async fn read_uncounted(
        &mut self,
        worker: &WorkerParts,
        unreadable: &mut LogThrottles,
    ) -> Result<(), StoreError> {
        let (table, application) = (&*worker.settings.table, &worker.settings.application);
        let limit = worker.settings.options.request_timeout();
        let names = self.roster.uncounted(self.rows.holders_with_a_ttl(), &worker.me.name);
        self.rows_read += names.len();
        let keys =
            names.into_iter().filter_map(|name| Some((application.worker(&name).ok()?, name)));
        let read = keys.map(|(key, name)| async move {
            let record = within(limit, table.read(&key)).await;
            (key, name, record)
        });
        let mut read = futures_util::stream::iter(read).buffer_unordered(CONCURRENT_READS);
        while let Some((key, name, record)) = read.next().await {
            let record = match record {
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    log_unreadable(unreadable, Some(&key), &error, NO_MEMBER);
                    None
                }
                record => record?,
            };
            self.roster.read_uncounted(&name, record.as_ref());
        }
        if self.roster.has_uncounted_members() {
            let snapshot = self.rows.snapshot();
            let placement = snapshot.placement(|row| self.is_live(row));
            let free = placement.into_iter().filter(|(_, holder)| holder.is_none());
            free.for_each(|(key, _)| self.rows.doubt(key));
        }
        Ok(())
    }

    /// Lists all rows. Returns the shards whose rows this worker did not know, and reads these rows once more,
    /// since the store may list stale rows. If these are too many, the worker soon lists all rows again instead.
    pub(super) async fn list(
        &mut self,
        worker: &WorkerParts,
        reading: &BTreeSet<LeaseKey>,
        unreadable: &mut LogThrottles,
    ) -> Result<BTreeSet<LeaseKey>, StoreError> {
        let settings = &worker.settings;
        let begun = now();
        let listed = Snapshot::take(&*settings.table, &settings.application, unreadable).await?;
        self.rows_read += listed.rows;
        self.roster.list(&listed.members, &worker.me.name);
        let known = self.rows.unread();
        let mut differing: BTreeSet<_> = self.rows.list(listed).into_iter().collect();
        for row in self.rows.snapshot().all_rows() {
            if let (Some(holder), Some(session)) = (&row.holder, &row.session) {
                self.roster.learn(holder, session, &worker.me.name);
            }
        }
        for key in reading {
            self.hold(worker, key);
        }
        // Only a row that no longer names this session shows the loss of its lease.
        for key in differing.intersection(reading) {
            self.rows.doubt(key.clone());
        }
        self.is_behind = false;
        let is_first = self.listed.is_none();
        if is_first || self.rows.uncertain(&differing) > MOST_READS {
            self.listed = Some((begun, begun));
            let unsettled = &self.unsettled;
            self.rows.trust_list(|key| unsettled.contains_key(key) || reading.contains(key));
            return Ok(BTreeSet::new());
        }
        self.listed = self.listed.map(|(first, _)| (first, begun));
        for key in &differing {
            self.rows.doubt(key.clone());
        }
        differing.retain(|key| !known.contains(key) && !reading.contains(key));
        Ok(differing)
    }

    pub(super) fn hold(&mut self, worker: &WorkerParts, key: &LeaseKey) {
        let holder = self.own.as_ref().map(|(_, own)| (worker.me.name.clone(), own.clone()));
        self.rows.set_holder(&worker.settings.application, key, holder);
    }

    /// Adds the shards of `reading` whose rows no longer name this session to the disowned ones.
    pub(super) async fn read_shards(
        &mut self,
        worker: &WorkerParts,
        reading: &BTreeSet<LeaseKey>,
        unreadable: &mut LogThrottles,
        keys: BTreeSet<LeaseKey>,
    ) -> Result<(), StoreError> {
        let (table, limit) = (&*worker.settings.table, worker.settings.options.request_timeout());
        self.rows_read += keys.len();
        let read = keys.into_iter().map(|key| async move {
            let record = within(limit, table.read(&key)).await;
            (key, record)
        });
        let mut read = futures_util::stream::iter(read).buffer_unordered(CONCURRENT_READS);
        while let Some((key, record)) = read.next().await {
            let record = match record {
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    self.rows.skip(&worker.settings.application, &key, &error, unreadable);
                    if self.unsettled.contains_key(&key) {
                        self.rows.doubt(key);
                    }
                    continue;
                }
                record => record?,
            };
            let is_own = self.is_own(record.as_ref());
            if let Some(holder) = record.as_ref().and_then(|record| record.holder.as_ref())
                && let Some(session) = &holder.parent
            {
                self.roster.learn(&holder.lessee, session, &worker.me.name);
            }
            self.rows.read(&worker.settings.application, &key, record, unreadable);
            let is_read = reading.contains(&key);
            if is_read && !is_own {
                self.disowned.insert(key.clone());
            } else {
                self.disowned.remove(&key);
            }
            self.settle(worker, key, is_own && !is_read);
        }
        Ok(())
    }

    fn is_own(&self, record: Option<&LeaseRecord>) -> bool {
        let holder = record.and_then(|record| record.holder.as_ref());
        let session = holder.and_then(|holder| holder.parent.as_ref());
        self.own.as_ref().is_some_and(|(_, own)| session == Some(own))
    }

    /// A claim or a release without an answer is settled when the row no longer names this session. `is_abandoned`
    /// means that this session holds `key`, and that no task reads it.
    fn settle(&mut self, worker: &WorkerParts, key: LeaseKey, is_abandoned: bool) {
        if is_abandoned {
            self.rows.doubt(key.clone());
            self.unsettled.insert(key, true);
        } else if self.unsettled.remove(&key) == Some(true) {
            self.notice(worker, &key);
        }
    }
}

const NO_MEMBER: &str = "its worker does not count for the plan";

const CONCURRENT_READS: usize = 32;
