//! Tells the other workers which rows have changed, for a worker under a session.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{Change, LeaseKey, StoreError};
use tokio::select;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use super::{Running, until};
use crate::names::{RowName, ShardName};
use crate::shard::ShardId;
use crate::time::now;
use crate::worker::parts::WorkerParts;
use crate::worker::view::{Progress, View};

impl Running {
    /// Changes the view, if the worker has one. A new notice is written soon.
    pub(super) fn note(&mut self, change: impl FnOnce(&mut View, &WorkerParts)) {
        let Self { worker, view: Some(view), .. } = self else { return };
        change(view, worker);
        self.is_at_rest = false;
        self.report_soon();
    }

    /// One report has the notices of all changes within a short time.
    pub(super) fn report_soon(&mut self) {
        if self.view.as_ref().is_some_and(View::must_count) {
            self.report_at.get_or_insert_with(|| now() + BEFORE_A_REPORT);
        }
    }

    /// After a look, reports what the view has found, and reads the rest at the pace.
    pub(super) fn follow_view(&mut self) {
        self.report_soon();
        self.read_at = self.view.as_ref().and_then(View::next_read);
    }

    /// Reads rows that other workers have changed, until the next tick is due. The tick finds workers that have died.
    pub(super) async fn catch_up(&mut self, next_tick: Instant) -> Progress {
        let Self { worker, view: Some(view), unreadable, reading, deadline, .. } = self else {
            return Progress::Done;
        };
        let reading = reading.keys().cloned().collect();
        let read = timeout_at(next_tick, view.catch_up(worker, &reading, unreadable));
        let progress = select! {
            biased;
            () = worker.stopping.cancelled(), if deadline.is_none() => Ok(Ok(Progress::Partial)),
            () = until(*deadline) => Ok(Ok(Progress::Partial)),
            progress = read => progress,
        };
        self.follow_view();
        match progress {
            Ok(Ok(progress)) => progress,
            Ok(Err(cause)) => {
                debug!(error = &cause as &dyn Error, "reported rows not read, retrying");
                // The next look sets the time again.
                self.read_at = None;
                Progress::Partial
            }
            Err(_elapsed) => Progress::Partial,
        }
    }

    pub(super) async fn report(&mut self) {
        self.report_at = None;
        match self.write_row().await {
            Ok(()) => self.count_or_retry().await,
            Err(cause) => {
                warn!(error = &cause as &dyn Error, "changes not reported, retrying");
            }
        }
    }

    /// Counts the changes in the worker's own row. A reader of an older row would not read the row again, so the row
    /// is written first.
    pub(super) async fn count(&mut self) -> Result<(), StoreError> {
        match &mut self.view {
            Some(view) if self.row_is_written => view.count(&self.worker).await,
            _ => Ok(()),
        }
    }

    /// Without the count, the other workers read the changes later. This worker needs no count.
    pub(super) async fn count_or_retry(&mut self) {
        if let Err(cause) = self.count().await {
            warn!(error = &cause as &dyn Error, "changes not counted, retrying");
        }
    }

    /// Removes the notices that all workers have had the time to read. They made each heartbeat more expensive.
    pub(super) fn forget_old_notices(&mut self) {
        let age = self.worker.settings.options.ttl() * 3;
        if self.view.as_mut().is_some_and(|view| view.forget_old_notices(age)) {
            self.row_is_written = false;
        }
    }

    /// Whether the view must list all rows: for a comparison with the stream, and as an audit.
    pub(super) fn must_list(&self) -> bool {
        let Some(view) = &self.view else { return true };
        let is_new = view.must_list_again(self.worker.settings.sync_interval.min(A_MINUTE));
        is_new
            || view.lacks_a_stream(&self.worker.sync) && view.has_old_list(self.between_lists())
            || self.may_compare() && self.comparison_is_due(&self.members)
    }

    /// The time between two lists while a stream has no row. The worker that creates the rows reports them. So only
    /// the first worker lists at each tick, and the others together list about as often as a third of that.
    fn between_lists(&self) -> Duration {
        if self.is_first(&self.members) {
            return Duration::ZERO;
        }
        let ticks = self.members.len().max(1).saturating_mul(3);
        self.worker.settings.tick().saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// A session that expires soon is looked at again at once.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        self.view.as_ref()?.next_expiry().map(|left| left.max(SHORTEST_PAUSE))
    }

    /// Reports the rows that a comparison with the stream has created.
    pub(super) fn report_created_rows(&mut self) {
        for key in self.worker.sync.take_created() {
            self.note(|view, worker| view.created(worker, key));
        }
    }

    /// Reports the new rows of the children of `parent`.
    pub(super) fn report_rows_of(&mut self, parent: &LeaseKey, children: BTreeSet<ShardId>) {
        let application = &self.worker.settings.application;
        let Some(RowName::Shard(ShardName { stream, .. })) = application.row(parent) else {
            return;
        };
        let name = |shard| ShardName { stream: stream.clone(), shard };
        let keys: Vec<_> =
            children.into_iter().map(|shard| application.shard(&name(shard))).collect();
        for key in keys {
            self.note(|view, worker| view.created(worker, key));
        }
    }

    /// Checks the leases of shards whose rows no longer name this session. No heartbeat would report the loss. Only
    /// a store that has lost data, or another program, takes a shard from a session.
    pub(super) async fn check_leases(&mut self, mut unchecked: BTreeSet<LeaseKey>) {
        let settings = &self.worker.settings;
        let is_slow = |key: &&LeaseKey| self.unanswered_checks.contains(*key);
        let (slow, others): (Vec<_>, Vec<_>) = unchecked.iter().partition(is_slow);
        let leases: Vec<_> = others
            .into_iter()
            .chain(slow)
            .filter_map(|key| Some((key.clone(), self.leases.get(key).and_then(Weak::upgrade)?)))
            .collect();
        // The worker does nothing else during this time. Checks without an answer leave time for others.
        let limit = settings.options.request_timeout();
        let checks = leases.into_iter().map(|(key, lease)| async move {
            let change = Change::new();
            let checked = timeout(limit / 2, lease.update(&*settings.table, &change)).await;
            debug!(%key, ?checked, "row of a shard no longer names this session");
            (key, matches!(checked, Ok(Ok(_))))
        });
        let mut checks = futures_util::stream::iter(checks).buffer_unordered(CONCURRENT_CHECKS);
        let (end, mut unanswered) = (now() + limit, BTreeSet::new());
        while let Ok(Some((key, is_answered))) = timeout_at(end, checks.next()).await {
            if is_answered {
                unchecked.remove(&key);
            } else {
                unanswered.insert(key);
            }
        }
        drop(checks);
        self.unanswered_checks = unanswered;
        for key in unchecked {
            self.note(|view, _| view.unchecked(key));
        }
    }
}

/// A store may report a short time again and again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

const CONCURRENT_CHECKS: usize = 64;

/// The first list may have had stale rows.
const A_MINUTE: Duration = Duration::from_mins(1);

/// Short beside a tick, and long enough for the claims of one tick.
const BEFORE_A_REPORT: Duration = Duration::from_millis(200);
