//! What a worker under a session knows of the table. It reads only the rows that have changed.
//!
//! Start with [`View`]: its `look` is the reading part of a tick. `roster` has the sessions of all workers.
//! `ring` finds sessions that have ended. `notices` tells the other workers which shards have changed, and `counting`
//! makes them read the notices. `reading` reads the rows of workers and shards, and `pace` limits how fast. `rows` keeps
//! the rows of shards. See docs/design/025-fleets.md for the protocol.

mod counting;
mod notices;
mod pace;
mod reading;
mod ring;
mod roster;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{LeaseTable, Parent, Sessions};
use lease_core::{Lease, LeaseKey, Lessee, StoreError, StoreErrorKind};
use tokio::time::Instant;

use self::notices::{Notices, RowCount};
use self::pace::{ReadPace, time_of_all};
pub(crate) use self::reading::Progress;
use self::reading::Turn;
use self::roster::{Roster, SessionId, Unread};
use self::rows::Rows;
use crate::log_throttle::LogThrottles;
use crate::plan::Member;
use crate::table::row::ShardRow;
use crate::table::snapshot::Snapshot;
use crate::table::sync::ShardSync;
use crate::time::now;
use crate::worker::parts::WorkerParts;

pub(crate) struct View {
    own: Option<(SessionId, Parent)>,
    roster: Roster,
    rows: Rows,
    notices: Notices,
    pace: ReadPace,
    /// Since when the own rows of other workers have changed that were not read yet.
    late_since: Option<Instant>,
    turn: Turn,
    /// Whether the worker's own row lacks a notice, or a change of the worker's state.
    is_unwritten: bool,
    leaving: Leaving,
    /// Whether the counter of this session must grow, since the row has changed or lacks the counter.
    must_count: bool,
    /// The counter of this session has never exceeded this number.
    counted: i64,
    /// The number in the worker's own row. The next count must not exceed it.
    row_count: RowCount,
    /// The failed counts since the last one with an answer, and when to count again.
    failed_counts: u32,
    count_after: Option<Instant>,
    /// Shards whose claim or release may not be answered. `true` if other workers may believe that this
    /// worker holds the shard.
    unsettled: BTreeMap<LeaseKey, bool>,
    /// Whether notices are missing, so that the worker must list all rows.
    is_behind: bool,
    /// When the rows were listed first, and last.
    listed: Option<(Instant, Instant)>,
    /// Shards whose rows differed in the last audit. Unless another worker reports them, this worker does.
    unreported: BTreeSet<LeaseKey>,
    /// Shards that this worker reads, although their rows no longer name its session. A look that fails keeps them for
    /// the next one.
    disowned: BTreeSet<LeaseKey>,
    /// When the session of the successor expires, counted from the last tick.
    next_expiry: Option<Duration>,
    ticks: u64,
    /// The number of rows that were read since the last tick.
    rows_read: usize,
}

/// The result of one look at the table.
pub(crate) struct Looked {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) members: Vec<Member>,
    /// Shards that this worker reads, although their rows no longer name its session.
    pub(crate) disowned: BTreeSet<LeaseKey>,
    pub(crate) is_listed: Listed,
    pub(crate) is_changed: bool,
}

/// Whether all rows were listed in this tick, or only changed rows were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    All,
    Changed,
}

/// Whether this worker stops, and whether the row `changes` says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    Unreported,
    Reported,
}

impl View {
    pub(crate) fn new() -> Self {
        Self {
            own: None,
            roster: Roster::default(),
            rows: Rows::default(),
            notices: Notices::default(),
            pace: ReadPace::default(),
            late_since: None,
            turn: Turn::Workers,
            is_unwritten: false,
            leaving: Leaving::No,
            must_count: false,
            counted: 0,
            row_count: RowCount(0),
            failed_counts: 0,
            count_after: None,
            unsettled: BTreeMap::new(),
            is_behind: false,
            listed: None,
            unreported: BTreeSet::new(),
            disowned: BTreeSet::new(),
            next_expiry: None,
            ticks: 0,
            rows_read: 0,
        }
    }

    /// The worker has obtained its own row. Its notices begin anew, because they belong to this session.
    pub(crate) fn start(&mut self, session: &Lease) {
        let parent = Parent::from(session.grant());
        let id = SessionId::new(session.lessee().clone(), session.token());
        self.roster.start(parent.clone());
        self.own = Some((id, parent));
        self.notices = Notices::default();
        (self.must_count, self.counted, self.row_count) = (true, 0, RowCount(0));
        (self.failed_counts, self.count_after) = (0, None);
        if self.leaving == Leaving::Reported {
            self.leaving = Leaving::Unreported;
        }
    }

    /// Whether old notices were removed, so that the worker's own row must be written.
    pub(crate) fn forget_old_notices(&mut self, age: Duration) -> bool {
        // A reader that is late for long reads at half of the pace.
        let until_read = time_of_all(self.roster.sessions()) * 2;
        self.notices.forget_old(now(), age.max(until_read))
    }

    /// Reports that this worker has obtained `key`.
    pub(crate) fn obtained(&mut self, worker: &WorkerParts, key: &LeaseKey) {
        self.hold(worker, key);
        self.unsettled.remove(key);
        self.notice(worker, key);
    }

    /// Reports that this worker no longer reads `key`. The release may not be answered yet.
    pub(crate) fn gave(&mut self, worker: &WorkerParts, key: &LeaseKey) {
        self.rows.set_holder(&worker.settings.application, key, None);
        self.rows.doubt(key.clone());
        self.unsettled.insert(key.clone(), false);
        self.notice(worker, key);
    }

    /// Reports that a claim of `key` was refused.
    pub(crate) fn refused(&mut self, key: LeaseKey) {
        self.rows.doubt(key);
    }

    /// Reports that it is unknown whether this worker still holds `key`.
    pub(crate) fn unchecked(&mut self, key: LeaseKey) {
        self.rows.doubt(key);
    }

    /// Reports that the outcome of a claim of `key` is unknown.
    pub(crate) fn unclear(&mut self, key: LeaseKey) {
        self.rows.doubt(key.clone());
        self.unsettled.insert(key, true);
    }

    /// Reports that the worker's own row will change.
    pub(crate) fn own_row_changes(&mut self) {
        (self.is_unwritten, self.must_count) = (true, true);
    }

    /// Reports that the row of `key` is new.
    pub(crate) fn created(&mut self, worker: &WorkerParts, key: LeaseKey) {
        self.notice(worker, &key);
        self.rows.doubt(key);
    }

    fn notice(&mut self, worker: &WorkerParts, key: &LeaseKey) {
        self.notices.add(&worker.settings.application, key, now());
        self.own_row_changes();
    }

    /// Whether the holder of `row` may still hold the shard.
    pub(crate) fn is_live(&self, row: &ShardRow) -> bool {
        row.session.as_ref().is_none_or(|session| self.roster.is_live(session))
    }

    /// When the next look is due, at the latest, because the session of the successor may have expired.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.next_expiry
    }

    /// Whether a stream has no row yet.
    pub(crate) fn lacks_a_stream(&self, sync: &ShardSync) -> bool {
        sync.is_new_to(&self.rows.snapshot())
    }

    /// Whether the rows were last listed at least `age` ago.
    pub(crate) fn has_old_list(&self, age: Duration) -> bool {
        self.listed.is_none_or(|(_, last)| last.elapsed() >= age)
    }

    /// Whether the worker `name` has a session, and thus reports what it changes.
    pub(crate) fn is_under_a_session(&self, name: &Lessee) -> bool {
        !self.roster.is_uncounted_member(name)
    }

    /// When the first list of all rows is due again: some of its rows may have been stale.
    pub(crate) fn must_list_again(&self, after: Duration) -> bool {
        self.listed.is_none_or(|(first, last)| first == last && first.elapsed() >= after)
    }

    /// Whether this look must list all rows, because reads of single rows would not suffice. After many changes, such as a
    /// cold start, the worker reads the rows of the other workers for some time. One list at its end has all changes.
    fn must_list_now(&self) -> bool {
        let pause = time_of_all(self.roster.sessions());
        self.listed.is_none()
            || self.rows.doubtful_or_expiring().len() > MOST_READS
            || self.is_behind && self.has_old_list(pause)
    }

    /// Reads what has changed since the last look, or lists all rows. A caller may drop the call: the next look
    /// reads the rest.
    pub(crate) async fn look(
        &mut self,
        worker: &WorkerParts,
        reading: &BTreeSet<LeaseKey>,
        unreadable: &mut LogThrottles,
        listed: Listed,
    ) -> Result<Looked, StoreError> {
        let Some((own, _)) = self.own.clone() else {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "the worker has no session"));
        };
        self.ticks += 1;
        self.watch_ring(worker, &own, reading, unreadable).await?;
        self.remove_ended(worker).await;
        let Unread { mut urgent, others } = self.roster.unread(&own);
        urgent.extend(self.in_turn(others));
        self.read_workers(worker, urgent, reading, unreadable).await?;
        self.read_uncounted(worker, unreadable).await?;
        self.report_missed(worker);
        self.is_behind |= self.rows.unread().len() > MOST_READS;
        let must_list = self.must_list_now();
        let is_audit = listed == Listed::All && !must_list;
        let listed = if must_list { Listed::All } else { listed };
        if listed == Listed::All {
            let differing = self.list(worker, reading, unreadable).await?;
            if is_audit {
                self.unreported = differing;
            }
        }
        let mut keys = match listed {
            Listed::All => self.rows.doubtful(),
            Listed::Changed => self.rows.doubtful_or_expiring(),
        };
        keys.extend(self.next_noticed());
        self.read_shards(worker, reading, unreadable, keys).await?;
        let disowned = std::mem::take(&mut self.disowned);
        worker.status.ticked(std::mem::take(&mut self.rows_read));
        let members = self.roster.members();
        let is_changed = self.rows.take_changed() | self.roster.take_changed();
        let (snapshot, others) = (self.rows.snapshot(), members.into_iter());
        let others = others.filter(|member| member.name != worker.me.name);
        let members = others.chain([worker.me.clone()]).collect();
        Ok(Looked { snapshot, members, disowned, is_listed: listed, is_changed })
    }
}

fn sessions(table: &dyn LeaseTable) -> Result<&dyn Sessions, StoreError> {
    let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no sessions");
    table.sessions().ok_or_else(none)
}

/// A list of all rows needs fewer requests than more reads.
const MOST_READS: usize = 512;

#[cfg(test)]
mod tests;
