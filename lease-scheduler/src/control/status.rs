//! The status of a job, as all processes can read it from the table.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lease_core::store::LeaseRecord;
use lease_core::{Holder, LeaseKey, StoreError};

use crate::control::record::{ControlRecord, Pause, job_of, read_pause};
use crate::control::trigger::TriggerNumber;
use crate::history::{Ending, PastRun};
use crate::job_record::{JobRecord, is_job};
use crate::schedule::Schedule;
use crate::text::error_chain;

/// The status of a job: its schedule, its next ticks, whether it is paused, and its runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobStatus {
    /// The name of the job.
    pub name: LeaseKey,
    /// The schedule, as text; `None` if no scheduler of this version has written it.
    pub schedule_text: Option<String>,
    /// The schedule; `None` if the text is missing or cannot be read.
    pub schedule: Option<Schedule>,
    /// Since when the job is paused, if it is.
    pub paused: Option<Pause>,
    /// Why the pause or the record of the job cannot be read, if so. Then no tick starts. A
    /// [`resume`](crate::JobControl::resume) removes a pause that cannot be read.
    pub error: Option<String>,
    /// The number of the trigger that waits, if any.
    pub waiting: Option<TriggerNumber>,
    /// The holder of the job's lease, if any.
    pub holder: Option<Holder>,
    /// The last started tick, if it is ahead of this process's clock: a clock was wrong. See
    /// [`reset_mark`](crate::JobControl::reset_mark).
    pub mark_ahead: Option<Timestamp>,
    /// The runs in the history, the latest first. The first one may still run.
    pub runs: Vec<PastRun>,
    /// Ticks up to this time need no run.
    settled: Timestamp,
}

impl JobStatus {
    /// Returns the next `count` ticks by this process's clock, whether the job is paused or not.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_scheduler::JobStatus;
    ///
    /// fn show(job: &JobStatus) {
    ///     let ticks: Vec<_> = job.next_ticks(3).iter().map(ToString::to_string).collect();
    ///     println!("{}: {}", job.name, ticks.join(", "));
    /// }
    /// ```
    pub fn next_ticks(&self, count: usize) -> Vec<Timestamp> {
        let Some(schedule) = &self.schedule else { return Vec::new() };
        let ticks = std::iter::successors(schedule.next(self.settled), |tick| schedule.next(*tick));
        ticks.take(count).collect()
    }

    /// Returns the current run, if the job runs.
    pub fn running(&self) -> Option<&PastRun> {
        self.runs.first().filter(|run| run.ending == Ending::Running)
    }

    /// Reads the status from the records of the job. `None` if `record` is not the record of a job.
    pub(super) fn read(
        record: &LeaseRecord,
        control: Option<&LeaseRecord>,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        if !is_job(&record.attributes) {
            return Ok(None);
        }
        let job = JobRecord::read(&record.attributes)?;
        let control = control.map(|control| &control.attributes);
        let (paused, error) = match control.map_or(Ok(None), read_pause) {
            Ok(paused) => (paused, None),
            Err(error) => (None, Some(error_chain(&error))),
        };
        let request = control.and_then(|control| ControlRecord::read(control).request);
        let mut runs = job.past_runs();
        if let Some(run) = runs.first_mut().filter(|run| run.ending == Ending::Running) {
            // A store may not know the token of a new holder yet. Then the run counts as running.
            let is_other = |token| token != run.token;
            let holder = record.holder.as_ref();
            if holder.is_none_or(|holder| holder.token.is_some_and(is_other)) {
                run.ending = Ending::Died;
            }
        }
        let schedule_text = job.schedule().map(str::to_owned);
        let schedule = schedule_text.as_deref().and_then(Schedule::from_stored_text);
        Ok(Some(Self {
            name: record.key.clone(),
            schedule: schedule.map(|schedule| schedule.for_job(&record.key)),
            schedule_text,
            paused,
            error,
            waiting: request.map(|request| request.number),
            holder: record.holder.clone(),
            mark_ahead: job.accounted().filter(|mark| *mark > now),
            runs,
            settled: job.settled(1).map_or(now, |settled| settled.max(now)),
        }))
    }

    /// Returns the status of a job whose record cannot be read.
    fn unreadable(record: &LeaseRecord, error: &StoreError, now: Timestamp) -> Self {
        Self {
            name: record.key.clone(),
            schedule_text: None,
            schedule: None,
            paused: None,
            error: Some(error_chain(error)),
            waiting: None,
            holder: record.holder.clone(),
            mark_ahead: None,
            runs: Vec::new(),
            settled: now,
        }
    }
}

/// Returns the status of each job in `records`, ordered by name.
pub(super) fn statuses(records: Vec<LeaseRecord>, now: Timestamp) -> Vec<JobStatus> {
    let records: BTreeMap<_, _> =
        records.into_iter().map(|record| (record.key.as_str().to_owned(), record)).collect();
    let controls: BTreeMap<_, _> =
        records.values().filter_map(|record| Some((job_of(&record.key)?, record))).collect();
    let jobs = records.values().filter(|record| job_of(&record.key).is_none());
    jobs.filter_map(|record| {
        let control = controls.get(record.key.as_str()).copied();
        JobStatus::read(record, control, now)
            .unwrap_or_else(|error| Some(JobStatus::unreadable(record, &error, now)))
    })
    .collect()
}
