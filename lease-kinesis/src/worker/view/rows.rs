//! The rows of the shards, as the worker has last read them.

use std::collections::BTreeSet;
use std::sync::Arc;

use lease_core::store::{LeaseRecord, Parent};
use lease_core::{LeaseKey, Lessee, StoreError};

use crate::log_throttle::LogThrottles;
use crate::names::{Application, RowName, ShardName};
use crate::position::Position;
use crate::table::row::ShardRow;
use crate::table::snapshot::{self, Snapshot};

#[derive(Debug, Default)]
pub(crate) struct Rows {
    snapshot: Arc<Snapshot>,
    /// The rows to read at the next tick.
    doubtful: BTreeSet<LeaseKey>,
    /// Shards that other workers have reported. The worker reads some of these rows at a time.
    noticed: BTreeSet<LeaseKey>,
    /// The last reported shard whose row was read. The next one comes after it.
    turn: Option<LeaseKey>,
    /// Shards whose leases have a ttl. No notice reports their expiry.
    expiring: BTreeSet<LeaseKey>,
    is_changed: bool,
}

impl Rows {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    pub(crate) fn doubt(&mut self, key: LeaseKey) {
        self.doubtful.insert(key);
    }

    pub(crate) fn doubtful(&self) -> BTreeSet<LeaseKey> {
        self.doubtful.clone()
    }

    pub(crate) fn doubtful_or_expiring(&self) -> BTreeSet<LeaseKey> {
        self.doubtful.union(&self.expiring).cloned().collect()
    }

    /// Another worker has reported the shard.
    pub(crate) fn notice(&mut self, key: LeaseKey) {
        self.noticed.insert(key);
    }

    pub(crate) fn noticed(&self) -> usize {
        self.noticed.len()
    }

    /// Returns at most `most` reported shards, in turn.
    pub(crate) fn next_noticed(&mut self, most: usize) -> Vec<LeaseKey> {
        let is_later = |key: &&LeaseKey| self.turn.as_ref().is_none_or(|turn| *key > turn);
        let later = self.noticed.iter().filter(is_later);
        let earlier = self.noticed.iter().filter(|key| !is_later(key));
        let keys: Vec<_> = later.chain(earlier).take(most).cloned().collect();
        if let Some(last) = keys.last() {
            self.turn = Some(last.clone());
        }
        keys
    }

    /// All rows that may have changed.
    pub(crate) fn unread(&self) -> BTreeSet<LeaseKey> {
        let unread = self.doubtful.iter().chain(&self.expiring).chain(&self.noticed);
        unread.cloned().collect()
    }

    /// The number of rows in doubt or reported, together with `others`.
    pub(crate) fn uncertain(&self, others: &BTreeSet<LeaseKey>) -> usize {
        let uncertain: BTreeSet<_> =
            self.doubtful.iter().chain(&self.noticed).chain(others).collect();
        uncertain.len()
    }

    /// Takes the last list of all rows for true, except for the rows that `must_read` names.
    pub(crate) fn trust_list(&mut self, must_read: impl Fn(&LeaseKey) -> bool) {
        self.doubtful.retain(&must_read);
        self.noticed.retain(must_read);
    }

    /// The shards that `session` has held, by the last reads.
    pub(crate) fn held_under(&self, session: &Parent) -> Vec<LeaseKey> {
        let rows = self.snapshot.all_rows().filter(|row| row.session.as_ref() == Some(session));
        rows.map(|row| row.key.clone()).collect()
    }

    /// The workers that hold shards without a session.
    pub(crate) fn holders_with_a_ttl(&self) -> BTreeSet<Lessee> {
        if self.expiring.is_empty() {
            return BTreeSet::new();
        }
        let expiring = self.snapshot.all_rows().filter(|row| self.expiring.contains(&row.key));
        expiring.filter_map(|row| row.holder.clone()).collect()
    }

    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Takes over one row that was just read.
    pub(crate) fn read(
        &mut self,
        application: &Application,
        key: &LeaseKey,
        record: Option<LeaseRecord>,
        unreadable: &mut LogThrottles,
    ) {
        self.doubtful.remove(key);
        self.noticed.remove(key);
        let Some(RowName::Shard(name)) = application.row(key) else { return };
        let before = self.snapshot.row(&name).cloned();
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.put(&name, record, unreadable);
        let row = snapshot.row(&name);
        self.is_changed |= row.map(planned) != before.as_ref().map(planned);
        let new_children = row.map(|row| unknown_children(snapshot, row)).unwrap_or_default();
        if row.is_some_and(is_expiring) {
            self.expiring.insert(key.clone());
        } else {
            self.expiring.remove(key);
        }
        self.doubtful.extend(new_children.iter().map(|child| application.shard(child)));
    }

    /// Forgets a row that the store cannot read, so that no worker claims its shard. A later list finds the row again.
    pub(crate) fn skip(
        &mut self,
        application: &Application,
        key: &LeaseKey,
        error: &StoreError,
        unreadable: &mut LogThrottles,
    ) {
        snapshot::log_unreadable(unreadable, Some(key), error, "its shard is skipped");
        self.read(application, key, None, unreadable);
    }

    /// Sets the holder of a row that this worker has just obtained or given away.
    pub(crate) fn set_holder(
        &mut self,
        application: &Application,
        key: &LeaseKey,
        holder: Option<(Lessee, Parent)>,
    ) {
        let Some(RowName::Shard(name)) = application.row(key) else { return };
        self.expiring.remove(key);
        let (holder, session) = holder.unzip();
        let is_other = |row: &ShardRow| (&row.holder, &row.session) != (&holder, &session);
        if !self.snapshot.row(&name).is_some_and(is_other) {
            return;
        }
        if let Some(row) = Arc::make_mut(&mut self.snapshot).row_mut(&name) {
            (row.holder, row.session) = (holder, session);
            self.is_changed = true;
        }
    }

    /// Takes over a list of all rows. Returns the shards whose rows differ from the last ones that were read. A
    /// store may list stale rows, so the worker reads these rows once more.
    pub(crate) fn list(&mut self, listed: Snapshot) -> Vec<LeaseKey> {
        let rows = |snapshot: &Snapshot| -> BTreeSet<(LeaseKey, Planned)> {
            snapshot.all_rows().map(|row| (row.key.clone(), planned(row))).collect()
        };
        let (before, after) = (rows(&self.snapshot), rows(&listed));
        let mut differing: Vec<_> =
            before.symmetric_difference(&after).map(|(key, _)| key.clone()).collect();
        differing.dedup();
        self.is_changed |= !differing.is_empty();
        self.expiring =
            listed.all_rows().filter(|row| is_expiring(row)).map(|row| row.key.clone()).collect();
        self.snapshot = Arc::new(listed);
        differing
    }
}

/// The parts of a row that decide which worker reads the shard. A checkpoint in the shard is not reported.
type Planned = (Option<Lessee>, Option<(LeaseKey, u64)>, bool);

fn planned(row: &ShardRow) -> Planned {
    let session = row.session.as_ref().map(|it| (it.key.clone(), it.token.get()));
    (row.holder.clone(), session, row.checkpoint == Position::ShardEnd)
}

/// A worker without a session reports no new rows, and the last notices of a session may be missing. A worker writes the children into the row of the shard that has ended.
fn unknown_children(snapshot: &Snapshot, row: &ShardRow) -> Vec<ShardName> {
    if row.checkpoint != Position::ShardEnd {
        return Vec::new();
    }
    let children = row.children.iter().cloned();
    let names = children.map(|shard| ShardName { stream: row.stream.clone(), shard });
    names.filter(|name| snapshot.row(name).is_none()).collect()
}

fn is_expiring(row: &ShardRow) -> bool {
    row.holder.is_some() && row.session.is_none()
}
