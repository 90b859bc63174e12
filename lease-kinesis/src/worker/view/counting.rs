//! The counter of the worker's own session. When it moves, the other workers read the worker's own row.

use std::error::Error;

use lease_core::store::within;
use lease_core::{Change, StoreError, Written};
use tracing::debug;

use super::notices::RowCount;
use super::ring::change_counters;
use super::{Leaving, View, sessions};
use crate::time::now;
use crate::worker::parts::WorkerParts;

impl View {
    /// Counts, so that the other workers read the worker's own row. The row must be written before: a reader
    /// of an older row would not read the row again. A counter that was removed would repeat numbers that
    /// readers have seen, so it continues above these numbers.
    pub(crate) async fn count(&mut self, worker: &WorkerParts) -> Result<(), StoreError> {
        if !self.count_is_due() || self.row_count.0 <= self.counted {
            return Ok(());
        }
        let settings = &worker.settings;
        // Fewer requests, since the table may throttle the row `changes`.
        let doublings = self.failed_counts.min(10);
        let pause = (settings.tick() * (1 << doublings)).min(settings.options.ttl());
        (self.failed_counts, self.count_after) =
            (self.failed_counts.saturating_add(1), Some(now() + pause.mul_f64(0.9)));
        self.count_now(worker).await?;
        if self.leaving == Leaving::Unreported
            && let Err(cause) = self.report_leaving(worker).await
        {
            debug!(
                error = &cause as &dyn Error,
                "the other workers learn later that this one stops"
            );
        }
        (self.failed_counts, self.count_after) = (0, None);
        Ok(())
    }

    async fn count_now(&mut self, worker: &WorkerParts) -> Result<(), StoreError> {
        let Some((own, _)) = &self.own else { return Ok(()) };
        let settings = &worker.settings;
        let (key, name) = (settings.application.changes(), own.to_string());
        let before = self.counted;
        // A request that is not answered may have counted.
        self.counted = before.saturating_add(1);
        let mut counted = 0;
        // Each request adds one. So the counter grows to this number, and does not exceed it.
        for _count in 0..MOST_COUNTS {
            let count = sessions(&*settings.table)?.count(&key, &name);
            counted = within(settings.options.request_timeout(), count).await?;
            if counted > before || before - counted >= MOST_COUNTS {
                break;
            }
        }
        if counted <= before {
            debug!(counted, before, "own counter was removed");
            let restored = Change::new().set(name, self.counted);
            if change_counters(worker, &restored).await? != Written::Applied {
                return Ok(());
            }
        }
        self.counted = self.counted.max(counted);
        // A request may count twice. Then the row has a number that is too small.
        self.must_count = self.row_count.0 < counted;
        Ok(())
    }

    /// A worker that is late reads the rows of others in turn. It needs the row of a worker that stops at once, to take
    /// over its shards.
    async fn report_leaving(&mut self, worker: &WorkerParts) -> Result<(), StoreError> {
        let Some((own, _)) = &self.own else { return Ok(()) };
        let (settings, name) = (&worker.settings, own.leaving());
        let key = settings.application.changes();
        let counted = sessions(&*settings.table)?.count(&key, &name);
        within(settings.options.request_timeout(), counted).await?;
        self.leaving = Leaving::Reported;
        Ok(())
    }

    /// Reports that this worker stops.
    pub(crate) fn leaves(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Unreported;
        }
        self.own_row_changes();
    }

    /// Adds the notices to a change of the worker's own row.
    pub(crate) fn write(&mut self, change: Change) -> Change {
        self.row_count = RowCount(self.counted.saturating_add(1));
        self.notices.write(change, self.row_count)
    }

    /// The last write of the own row may arrive late, and remove the notices of a later write. So no later row has its
    /// number.
    pub(crate) fn write_is_unanswered(&mut self) {
        self.counted = self.counted.saturating_add(1);
    }

    /// Whether the worker's own row must be written, because of changes since the last call. A count without this
    /// write would let the other workers read the row too early.
    pub(crate) fn take_unwritten(&mut self) -> bool {
        let lacks_number = self.count_is_due() && self.row_count.0 <= self.counted;
        std::mem::take(&mut self.is_unwritten) || lacks_number
    }

    fn count_is_due(&self) -> bool {
        self.must_count && self.count_after.is_none_or(|after| now() >= after)
    }

    /// Whether the other workers must read this worker's own row. The row may already be written.
    pub(crate) fn must_count(&self) -> bool {
        self.must_count
    }
}

/// More counts would take longer than to set a counter under a lease.
const MOST_COUNTS: i64 = 8;
