//! Writes to a job's record outside of runs: runs that died, missed ticks, a changed schedule, and a mark
//! that an operator resets.

use jiff::{SignedDuration, Timestamp};
use lease_core::{Attempt, Lease, StoreError};

use crate::history::{Ending, PastRun};
use crate::job_record::{self, JobRecord};
use crate::run::{Marked, Runner};
use crate::schedule::MissedTicks;

impl Runner {
    /// Writes to the history that the last run died, and which ticks no machine started. Returns false if
    /// the caller must try again later.
    ///
    /// If the lease can be obtained, a run without a written end has died. Ticks that pass while the job is
    /// disabled do not count as missed.
    pub(crate) async fn reconcile(&self, since: Timestamp) -> bool {
        if !(self.job.only_if)() {
            return true;
        }
        let (Ok(is_on), Ok(is_paused)) = (self.is_on().await, self.is_paused().await) else {
            return false;
        };
        let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&self.job.name).await else {
            return false;
        };
        let is_done = self.reconcile_under(&lease, since, is_on && !is_paused).await;
        drop(lease.release().await);
        is_done
    }

    async fn reconcile_under(&self, lease: &Lease, since: Timestamp, is_on: bool) -> bool {
        // If the record cannot be read, the run of the next due tick logs this.
        let Ok(mut record) = JobRecord::read(lease.attributes()) else { return true };
        let now = self.wall.now();
        let (died, passed) = (record.running(), self.missed(&record, since, now));
        if died.is_none() && passed.is_none() {
            return true;
        }
        let missed = passed.filter(|_| is_on);
        let change = {
            let (missed, passed) = (missed.as_ref(), passed.as_ref());
            record.reconcile(lease.grant(), missed, passed, self.job.history_length, now)
        };
        let is_written = matches!(self.write(lease, &change).await, Ok(Marked::AsExpected));
        if is_written {
            self.report_missed_and_died(missed, died);
        }
        is_written
    }

    /// Writes that the ticks up to `tick` passed while the job was paused or switched off: they do not count as
    /// missed. Returns false if the caller must try again later.
    pub(crate) async fn pass_disabled(&self, tick: Timestamp, since: Timestamp) -> bool {
        let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&self.job.name).await else {
            return false;
        };
        let is_done = self.pass_under(&lease, tick, since).await;
        drop(lease.release().await);
        is_done
    }

    async fn pass_under(&self, lease: &Lease, tick: Timestamp, since: Timestamp) -> bool {
        // If the record cannot be read, the next run of a tick logs this.
        let Ok(mut record) = JobRecord::read(lease.attributes()) else { return false };
        let passed = self.job.schedule.ticks_between(self.accounted(&record, since), tick);
        let Some(passed) = passed else { return true };
        let died = record.running();
        let (kept, now) = (self.job.history_length, self.wall.now());
        let change = record.reconcile(lease.grant(), None, Some(&passed), kept, now);
        let is_written = matches!(self.write(lease, &change).await, Ok(Marked::AsExpected));
        if is_written {
            self.report_missed_and_died(None, died);
        }
        is_written
    }

    /// Returns the ticks up to `now` that no machine started. `None` if there are none, or one is still due.
    fn missed(&self, record: &JobRecord, since: Timestamp, now: Timestamp) -> Option<MissedTicks> {
        let attempts = self.job.attempts;
        let (settled, unfinished) =
            (record.counts_from(since, attempts), record.unfinished(attempts));
        if self.due(settled, unfinished, now, self.job.misfire).is_some() {
            return None;
        }
        self.job.schedule.ticks_between(self.accounted(record, since), now)
    }

    /// Returns the time up to which each tick was started, or is in the history as missed. If the record has
    /// no such tick, returns `since`, or the time at which the job was first seen.
    pub(crate) fn accounted(&self, record: &JobRecord, since: Timestamp) -> Timestamp {
        let accounted = record.accounted();
        if record.has_other_schedule(&self.job.schedule.stored_text()) {
            return accounted.map_or(since, |accounted| accounted.max(since));
        }
        accounted.unwrap_or_else(|| record.first_seen(since))
    }

    /// Replaces the schedule in the record by this job's schedule. Then ticks up to `from` do not count.
    pub(crate) async fn change_schedule(&self, from: Timestamp) {
        if let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&self.job.name).await {
            // If this fails, the first run writes the schedule.
            let change = job_record::change_schedule(from, &self.job.schedule.stored_text());
            drop(self.write(&lease, &change).await);
            drop(lease.release().await);
        }
    }

    /// Returns the runs in the history, the latest first. If the end of the last run is not written and its
    /// lease is not held, the run is returned as died.
    pub(crate) async fn past_runs(&self) -> Result<Vec<PastRun>, StoreError> {
        let mut record = self.read_record().await?;
        let mut has_died = false;
        if let Some(run) = record.running() {
            let holder = self.locker.holder(&self.job.name).await?;
            // A store may not know the token of a new holder yet. Then the run counts as running.
            let is_other = |token| token != run.token;
            if holder.is_none_or(|holder| holder.token.is_some_and(is_other)) {
                // The run may have ended between the two reads.
                record = self.read_record().await?;
                has_died = record.is_running(run.token);
            }
        }
        let mut runs = record.past_runs();
        if let Some(run) = runs.first_mut().filter(|run| run.ending == Ending::Running && has_died)
        {
            run.ending = Ending::Died;
        }
        Ok(runs)
    }

    /// Returns how far a mark may be ahead of this clock without a warning.
    pub(crate) fn tolerance(&self) -> SignedDuration {
        SignedDuration::try_from(self.locker.options().poll_interval())
            .unwrap_or(SignedDuration::MAX)
    }
}
