//! What no run writes: runs that died, ticks that nobody began, and marks that an operator resets.

use jiff::{SignedDuration, Timestamp};
use lease_core::{Attempt, Holder, Lease, StoreError, StoreErrorKind};

use crate::history::{Ending, PastRun};
use crate::outcome::Skip;
use crate::run::{Marked, Runner};
use crate::schedule::MissedTicks;
use crate::standing::{self, Standing};

/// What [`SchedulerHandle::reset_mark`](crate::SchedulerHandle::reset_mark) has done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MarkReset {
    /// Ticks from now on are run again; up to this mark they were not.
    Reset(Timestamp),
    /// No tick after now was marked as run.
    NotAhead,
    /// The job runs, or its key is reserved: stop the job, or ask again later.
    Held(Holder),
}

impl Runner {
    /// Writes into the history that the last run died, and which ticks nobody began. Whether nothing
    /// is left to be written.
    ///
    /// The run has died if its lease can be obtained. While the job is switched off, its ticks are not
    /// missed: they are passed over.
    pub(crate) async fn account(&self, since: Timestamp) -> bool {
        if !(self.job.only_if)() {
            return true;
        }
        let Ok(is_on) = self.is_on().await else { return false };
        let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&self.job.name).await else {
            return false;
        };
        let is_done = self.account_under(&lease, since, is_on).await;
        drop(lease.release().await);
        is_done
    }

    async fn account_under(&self, lease: &Lease, since: Timestamp, is_on: bool) -> bool {
        // A record that cannot be read is warned of where a tick is due.
        let Ok(mut standing) = Standing::read(lease.attributes()) else { return true };
        let now = self.wall.now();
        let (died, passed) = (standing.running(), self.missed(&standing, since, now));
        if died.is_none() && passed.is_none() {
            return true;
        }
        let missed = passed.filter(|_| is_on);
        let change = standing.account(lease.grant(), missed.as_ref(), passed.as_ref(), now);
        let is_written = matches!(self.write(lease, &change).await, Ok(Marked::AsExpected));
        if is_written {
            self.tell_of(missed, died);
        }
        is_written
    }

    /// The ticks up to `now` that nobody began, if none is due any more.
    fn missed(&self, standing: &Standing, since: Timestamp, now: Timestamp) -> Option<MissedTicks> {
        let attempts = self.job.attempts;
        let (settled, unfinished) =
            (standing.begins(since, attempts), standing.unfinished(attempts));
        if self.due(settled, unfinished, now, self.job.missed).is_some() {
            return None;
        }
        self.job.schedule.ticks_between(self.accounted(standing, since), now)
    }

    /// The last moment whose ticks were begun or are in the history as missed, if ticks count from
    /// `since` on where the record does not say.
    pub(crate) fn accounted(&self, standing: &Standing, since: Timestamp) -> Timestamp {
        let accounted = standing.accounted();
        if standing.is_of_another(&self.job.schedule.words()) {
            return accounted.map_or(since, |accounted| accounted.max(since));
        }
        accounted.unwrap_or_else(|| standing.first_seen(since))
    }

    /// Writes the schedule onto a record that has another: ticks before now were not of this one.
    pub(crate) async fn change_schedule(&self, now: Timestamp) {
        if let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&self.job.name).await {
            // If it cannot be written, the first run does.
            drop(self.write(&lease, &standing::changed(now, &self.job.schedule.words())).await);
            drop(lease.release().await);
        }
    }

    pub(crate) async fn reset_mark(&self) -> Result<MarkReset, StoreError> {
        let lease = match self.locker.obtain(&self.job.name).await? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => return Ok(MarkReset::Held(holder)),
        };
        let reset = self.reset_under(&lease).await;
        drop(lease.release().await);
        reset
    }

    async fn reset_under(&self, lease: &Lease) -> Result<MarkReset, StoreError> {
        let (standing, now) = (Standing::read(lease.attributes())?, self.wall.now());
        let Some(mark) = standing.accounted().filter(|mark| *mark > now) else {
            return Ok(MarkReset::NotAhead);
        };
        match self.write(lease, &standing::restart(now, &self.job.schedule.words())).await {
            Ok(_) => Ok(MarkReset::Reset(mark)),
            Err(Skip::Unknown(error)) => Err(error),
            Err(skip) => Err(StoreError::new(StoreErrorKind::Unavailable, skip.to_string())),
        }
    }

    /// The runs in the history, the last one first. One without an end runs only if the store says
    /// that its lease is held.
    pub(crate) async fn past_runs(&self) -> Result<Vec<PastRun>, StoreError> {
        let mut standing = self.standing().await?;
        let mut has_died = false;
        if let Some(run) = standing.running() {
            let holder = self.locker.holder(&self.job.name).await?;
            if holder.is_none_or(|holder| holder.token != run.token) {
                // It may have ended between the two looks.
                standing = self.standing().await?;
                has_died = standing.is_running(run.token);
            }
        }
        let mut runs = standing.past_runs();
        if let Some(run) = runs.first_mut().filter(|run| run.ending == Ending::Running && has_died)
        {
            run.ending = Ending::Died;
        }
        Ok(runs)
    }

    /// How far a mark may be ahead of this clock before it is warned of.
    pub(crate) fn tolerance(&self) -> SignedDuration {
        SignedDuration::try_from(self.locker.options().poll_interval())
            .unwrap_or(SignedDuration::MAX)
    }
}
