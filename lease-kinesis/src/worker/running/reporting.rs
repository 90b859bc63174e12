//! Tells the other workers which rows have changed, for a worker under a session.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Weak;
use std::time::Duration;

use lease_core::{Change, LeaseKey};
use tracing::{debug, warn};

use super::Running;
use crate::names::{RowName, ShardName};
use crate::shard::ShardId;
use crate::time::now;
use crate::worker::parts::WorkerParts;
use crate::worker::view::View;

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
        if self.report_at.is_none() && self.view.as_ref().is_some_and(View::has_notices) {
            self.row_is_written = false;
            self.report_at = Some(now() + BEFORE_A_REPORT);
        }
    }

    pub(super) async fn report(&mut self) {
        self.report_at = None;
        if let Err(cause) = self.write_row().await {
            warn!(error = &cause as &dyn Error, "changes not reported, retrying");
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
        let is_new = view.must_list_again(self.worker.settings.sync_interval);
        is_new
            || view.lacks_a_stream(&self.worker.sync)
            || self.may_compare() && self.comparison_is_due(&self.members)
    }

    /// A session that expires soon is looked at again at once.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        self.view.as_ref()?.next_expiry().map(|left| left.max(SHORTEST_PAUSE))
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
    pub(super) async fn check_leases(&mut self, disowned: Vec<LeaseKey>) {
        let table = &*self.worker.settings.table;
        for key in disowned {
            let Some(lease) = self.leases.get(&key).and_then(Weak::upgrade) else { continue };
            let checked = lease.update(table, &Change::new()).await;
            debug!(%key, ?checked, "row of a shard no longer names this session");
        }
    }
}

/// A store may report a short time again and again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Short beside a tick, and long enough for the claims of one tick.
const BEFORE_A_REPORT: Duration = Duration::from_millis(200);
