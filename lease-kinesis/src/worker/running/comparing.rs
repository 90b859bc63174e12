//! Compares the rows with the shards of the stream, from time to time.

use std::sync::Arc;
use std::time::Duration;

use lease_core::Lessee;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::Running;
use crate::plan::Member;
use crate::table::snapshot::Snapshot;
use crate::table::sync::SyncResult;
use crate::time::now;

impl Running {
    /// Starts a due comparison in its own task, because a stream may answer late or never.
    pub(super) fn synchronise(&mut self, snapshot: &Arc<Snapshot>, members: &[Member]) {
        if !self.may_compare() {
            return;
        }
        if !self.comparison_is_due(members) && !self.worker.sync.is_new_to(snapshot) {
            return;
        }
        let begun = now();
        self.is_reshaped = false;
        let (sync, locker) = (Arc::clone(&self.worker.sync), self.worker.locker.clone());
        let snapshot = Arc::clone(snapshot);
        let compare = async move {
            let compared = timeout(SYNC_TIMEOUT, sync.synchronise(&snapshot, &locker)).await;
            (begun, compared.unwrap_or(SyncResult::Failed))
        };
        self.comparing.spawn(compare.in_current_span());
    }

    pub(super) fn may_compare(&self) -> bool {
        self.deadline.is_none() && self.comparing.is_empty()
    }

    /// Workers of the two modes do not rely on each other.
    pub(super) fn is_first(&self, members: &[Member]) -> bool {
        let names = members.iter().map(|member| &member.name);
        let is_alike =
            |name: &&Lessee| self.view.as_ref().is_none_or(|view| view.is_under_a_session(name));
        let first = names.filter(is_alike).min();
        first == Some(&self.worker.me.name)
    }

    pub(super) fn comparison_is_due(&self, members: &[Member]) -> bool {
        let settings = &self.worker.settings;
        // The other workers compare rarely, in case the first worker fails.
        let is_first = self.is_first(members);
        let turns = match &self.view {
            // Only this worker removes the ended rows that it keeps. The call also forgets lost leases, so each
            // worker makes it.
            _ if self.worker.sync.ended().has_any() || is_first => 1,
            None => 5,
            // A comparison needs a list of all rows. So all of these workers together list a few times per
            // interval, whatever their number is.
            Some(_) => members.len().max(1).saturating_mul(3),
        };
        let interval =
            settings.sync_interval.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX));
        // An early comparison creates the rows of all children of a reshard. So all workers soon plan with
        // the final number of shards.
        let is_early = self.is_reshaped && (is_first || self.view.is_none());
        let interval = if is_early { interval.min(settings.tick()) } else { interval };
        self.synchronised.is_none_or(|last| last.elapsed() >= interval)
    }

    /// Returns whether the next tick is due at once.
    pub(super) fn has_compared(&mut self, begun: Instant, compared: SyncResult) -> bool {
        self.report_created_rows();
        // A comparison needs a list of all rows. So under a session, only the first worker retries at once.
        let leaves_it = self.view.is_some() && !self.is_first(&self.members);
        // After any other result, the next tick compares again: no worker reads a shard without a row.
        let is_done = match compared {
            SyncResult::Unchanged => true,
            SyncResult::Failed => leaves_it,
            SyncResult::Changed => false,
        };
        self.synchronised = is_done.then_some(begun);
        compared == SyncResult::Changed
    }
}

const SYNC_TIMEOUT: Duration = Duration::from_mins(5);
