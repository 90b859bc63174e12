//! Lists, pauses, resumes, triggers and repairs jobs, from any process.
//!
//! Start with [`JobControl`]. `record.rs` has the control record of a job, which commands are written to,
//! `record_access.rs` reads and writes it under its lease, `trigger.rs` triggers and their answers, `status.rs` the
//! status of a job, `query.rs` queries of the history, `mark_reset.rs` the result of a repair.
//! `docs/design/031-job-commands.md` has the reasons.

pub(crate) mod mark_reset;
mod query;
mod record;
mod record_access;
mod status;
pub(crate) mod trigger;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use lease_core::store::LeaseTable;
use lease_core::{
    Attempt, InvalidInput, Lease, LeaseKey, Locker, StoreError, StoreErrorKind, Written,
};
use tokio::select;
use tokio::time::sleep;

pub use self::query::RunQuery;
pub use self::record::Pause;
use self::record::StoredAnswer;
pub(crate) use self::record::{ControlRecord, control_key, job_of};
pub use self::status::JobStatus;
use crate::clock::{SystemWallClock, WallClock};
use crate::control::mark_reset::MarkReset;
use crate::control::trigger::{
    Request, Trigger, TriggerAnswer, TriggerNumber, TriggerState, Triggered,
};
use crate::history::PastRun;
use crate::job_record::{self, JobRecord};

/// Lists, pauses, resumes, triggers and repairs the jobs of a table, from any process. It needs no bodies.
///
/// A command is written to a record of its own, under a short lease. The schedulers that have the job read
/// it. So commands survive restarts, and work while the job runs.
///
/// # Cancel safety
///
/// Every call may be dropped. It is then unknown whether the command was written.
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_scheduler::{Job, JobControl, Scheduler, Trigger, TriggerState, Triggered};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(); // with Redis, the two processes have a connection each
/// let import = Job::new("import".parse()?, |job| async move {
///     job.note(format!("imported {:?}", job.arguments().get("day")));
///     Ok(())
/// });
/// let scheduler = Scheduler::builder(Locker::new(store.clone()), store.clone());
/// let running = tokio::spawn(scheduler.with_job(import).build()?.run());
///
/// let control = JobControl::new(&Locker::new(store.clone()), store);
/// while control.list("").await?.is_empty() {
///     tokio::task::yield_now().await; // until the scheduler has started
/// }
/// let trigger = Trigger::new().with_argument("day", "2026-11-20");
/// let Triggered::Accepted(number) = control.trigger("import", &trigger).await? else {
///     return Err("another trigger waits".into());
/// };
/// println!("{:?}", control.wait_for_answer("import", number).await?); // it was started
/// # running.abort();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct JobControl {
    /// Obtains leases of jobs, to repair them.
    locker: Locker,
    /// Obtains the leases of control records, for one write each. Its short ttl ensures that a crash during a write
    /// blocks others only briefly.
    writer: Locker,
    table: Arc<dyn LeaseTable>,
    wall: Arc<dyn WallClock>,
}

impl JobControl {
    /// Makes a control of the jobs in `table`. `locker` must be on the same table.
    pub fn new(locker: &Locker, table: impl LeaseTable) -> Self {
        Self::on(locker, Arc::new(table), Arc::new(SystemWallClock::new()))
    }

    pub(crate) fn on(
        locker: &Locker,
        table: Arc<dyn LeaseTable>,
        wall: Arc<dyn WallClock>,
    ) -> Self {
        let options = locker.options();
        let short = options.clone().with_ttl(WRITING.min(options.ttl()));
        // The ttl of the locker is in range. A short ttl may be too short for the locker's heartbeats.
        let short = short.unwrap_or_else(|_| options.clone());
        let writer = locker.clone().with_options(short);
        Self { locker: locker.clone(), writer, table, wall }
    }

    /// Reads the time of day from `wall`: for tests.
    #[must_use]
    pub fn with_wall_clock(mut self, wall: Arc<dyn WallClock>) -> Self {
        self.wall = wall;
        self
    }

    /// Lists the jobs whose names start with `prefix`, ordered by name. A job is listed once a scheduler has started
    /// with it, also after its removal. If the record of a job cannot be read, its status has the [`error`](JobStatus::error) and no runs.
    ///
    /// # Errors
    ///
    /// If the table does not answer.
    ///
    /// # Examples
    ///
    /// ```
    /// async fn paused(jobs: &lease_scheduler::JobControl) -> Result<usize, lease_core::StoreError> {
    ///     Ok(jobs.list("").await?.iter().filter(|job| job.paused.is_some()).count())
    /// }
    /// ```
    pub async fn list(&self, prefix: &str) -> Result<Vec<JobStatus>, StoreError> {
        let records = self.table.list(prefix).try_collect().await?;
        Ok(status::statuses(records, self.wall.now()))
    }

    /// Returns the status of the job `name`; `None` if no scheduler has ever started it.
    ///
    /// # Errors
    ///
    /// If the table does not answer, or the record of the job cannot be read.
    pub async fn job(&self, name: &str) -> Result<Option<JobStatus>, StoreError> {
        let key = key(name)?;
        let control = control_key(&key).map_err(refused)?;
        let control = self.within(self.table.read(&control)).await?;
        match self.within(self.table.read(&key)).await? {
            Some(record) => JobStatus::read(&record, control.as_ref(), self.wall.now()),
            None => Ok(None),
        }
    }

    /// Pauses the job `name`: no tick starts on any machine until [`resume`](Self::resume), also after
    /// restarts. Triggers still start runs. A body that runs continues. Ticks that pass meanwhile do not count as
    /// missed. `why` is shown in lists.
    ///
    /// A scheduler that has read the record just before may still start its tick. A scheduler of a version without
    /// pauses ignores the pause.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. If no scheduler has ever started a job of that name, the kind is
    /// [`Refused`](StoreErrorKind::Refused).
    ///
    /// # Examples
    ///
    /// ```
    /// async fn stop_for_a_night(jobs: &lease_scheduler::JobControl) -> Result<(), lease_core::StoreError> {
    ///     jobs.pause("nightly-report", "the printer is broken").await
    /// }
    /// ```
    pub async fn pause(&self, name: &str, why: &str) -> Result<(), StoreError> {
        let pause = Pause {
            since: self.wall.now(),
            by: self.writer.lessee().as_str().to_owned(),
            why: why.chars().take(LONGEST_REASON).collect(),
        };
        self.set_paused(name, Some(&pause)).await
    }

    /// Resumes the job `name`. A tick that passed during the pause starts if its [`Misfire`](crate::Misfire) policy
    /// still allows it. Schedulers notice within 5 s, or within a quarter of the time of
    /// [`StartWithin`](crate::Misfire::StartWithin) if that is shorter.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause).
    pub async fn resume(&self, name: &str) -> Result<(), StoreError> {
        self.set_paused(name, None).await
    }

    async fn set_paused(&self, name: &str, pause: Option<&Pause>) -> Result<(), StoreError> {
        let key = self.existing(name).await?;
        self.write(&key, |_, _| (Some(ControlRecord::set_paused(pause)), ())).await
    }

    /// Requests one run of the job `name`, with arguments. A scheduler that has the job starts it, usually
    /// within a second. Returns when the trigger is written: see
    /// [`wait_for_answer`](Self::wait_for_answer).
    ///
    /// At most one trigger of a job waits. The job's [`Concurrency`](crate::Concurrency) decides whether
    /// a trigger may wait for the end of a run. A trigger that has expired by this process's clock is replaced,
    /// unless a scheduler has taken it to start it.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown: repeat the call with an [id](Trigger::with_id). If the id or the arguments are too
    /// long, or no scheduler has ever started a job of that name, the kind is [`Refused`](StoreErrorKind::Refused).
    pub async fn trigger(&self, name: &str, trigger: &Trigger) -> Result<Triggered, StoreError> {
        trigger.check().map_err(refused)?;
        let key = self.existing(name).await?;
        let by = self.writer.lessee().as_str();
        // The numbers of this call's own writes. One of them may have been applied without an answer.
        let mut own = Vec::new();
        self.write(&key, |record, token| {
            let now = self.wall.now();
            // An expired trigger remains if no scheduler has the job.
            let is_over = |other: &Request| other.has_expired(now) && other.taken_by.is_none();
            let waits = record.request.as_ref();
            let is_own = |number| own.contains(&number);
            let is_repeated = |id: &Option<String>| id.is_some() && *id == trigger.id;
            if let Some(Request { number, id, .. }) = waits.filter(|other| !is_over(other)) {
                return match () {
                    () if is_own(*number) => (None, Triggered::Accepted(*number)),
                    () if is_repeated(id) => (None, Triggered::Repeated(*number)),
                    () => (None, Triggered::OtherWaits(*number)),
                };
            }
            let mut sent = record.answers();
            // A caller may repeat a trigger that was refused.
            let is_sent = |answer: &StoredAnswer| {
                let has_started = answer.answer == TriggerAnswer::Started;
                is_own(answer.number) || has_started && is_repeated(&answer.id)
            };
            if let Some(StoredAnswer { number, .. }) = sent.find(is_sent) {
                let [own, other] = [Triggered::Accepted(number), Triggered::Repeated(number)];
                return (None, if is_own(number) { own } else { other });
            }
            let request = trigger.request(token, by, now);
            own.push(request.number);
            let change = match waits {
                Some(expired) => record.replace(expired, &request),
                None => record.add(&request),
            };
            (Some(change), Triggered::Accepted(request.number))
        })
        .await
    }

    /// Withdraws a trigger that no scheduler has started. Returns false if it was answered before, or a
    /// scheduler is about to start it.
    ///
    /// A scheduler may have died before the start. Then the trigger can be withdrawn when the job's lease has expired.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause).
    pub async fn withdraw(&self, name: &str, number: TriggerNumber) -> Result<bool, StoreError> {
        let key = self.existing(name).await?;
        let (is_withdrawn, taken) = self
            .write(&key, |record, _| match &record.request {
                Some(request) if request.number == number && request.taken_by.is_some() => {
                    (None, (false, Some(request.clone())))
                }
                Some(request) if request.number == number => {
                    let change = record.answer(request, TriggerAnswer::Withdrawn);
                    (Some(change), (true, None))
                }
                // After a lost reply, the answer may be this call's own.
                _ => (None, (state_of(record, number) == WITHDRAWN, None)),
            })
            .await?;
        match taken {
            Some(request) => self.withdraw_taken(&key, &request).await,
            None => Ok(is_withdrawn),
        }
    }

    /// Withdraws a trigger that was taken, under the job's lease. If it was started, writes this answer.
    async fn withdraw_taken(&self, key: &LeaseKey, taken: &Request) -> Result<bool, StoreError> {
        let Attempt::Obtained(lease) = self.locker.obtain(key).await? else { return Ok(false) };
        let has_started = JobRecord::read(lease.attributes())?.has_started(taken.number);
        let answer = if has_started { TriggerAnswer::Started } else { TriggerAnswer::Withdrawn };
        let answered = self.write(key, |record, _| {
            // A later holder of the job's lease has taken the trigger again, and may have started it.
            let is_same = record.request.as_ref() == Some(taken);
            let change = is_same.then(|| record.answer(taken, answer));
            let is_answered = is_same || state_of(record, taken.number) == WITHDRAWN;
            (change, is_answered && answer == TriggerAnswer::Withdrawn)
        });
        let answered = answered.await;
        drop(lease.release().await);
        answered
    }

    /// Returns the state of a trigger of the job `name`.
    ///
    /// # Errors
    ///
    /// If the table does not answer, or the record cannot be read.
    pub async fn trigger_state(
        &self,
        name: &str,
        number: TriggerNumber,
    ) -> Result<TriggerState, StoreError> {
        Ok(state_of(&self.read(&key(name)?).await?, number))
    }

    /// Waits until a trigger of the job `name` is answered: until a scheduler has started the run, or has refused
    /// it. For a limit, use `tokio::time::timeout`.
    ///
    /// # Errors
    ///
    /// As for [`trigger_state`](Self::trigger_state).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads. The trigger still waits.
    pub async fn wait_for_answer(
        &self,
        name: &str,
        number: TriggerNumber,
    ) -> Result<TriggerState, StoreError> {
        let key = control_key(&key(name)?).map_err(refused)?;
        loop {
            let watch = self.within(self.table.watch(&key)).await;
            let state = self.trigger_state(name, number).await?;
            if state != TriggerState::Waiting {
                return Ok(state);
            }
            let changed = async {
                match watch {
                    Ok(mut watch) => drop(watch.next().await),
                    Err(_) => std::future::pending().await,
                }
            };
            select! {
                // The order does not matter: both lead to the next read.
                biased;
                () = changed => (),
                () = sleep(BETWEEN_READS) => (),
            }
        }
    }

    /// Returns the past runs of the job `name` that `query` selects, the latest first.
    ///
    /// A run without an end is [`Running`](crate::Ending::Running) if the store reports its lease as held;
    /// otherwise it is [`Died`](crate::Ending::Died).
    ///
    /// # Errors
    ///
    /// If the table does not answer, or the record cannot be read. If no scheduler has ever started a job of that
    /// name, the kind is [`Refused`](StoreErrorKind::Refused).
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_scheduler::jiff::Timestamp;
    /// use lease_scheduler::{Ending, JobControl, PastRun, RunQuery};
    ///
    /// async fn failures(jobs: &JobControl, since: Timestamp) -> Result<Vec<PastRun>, lease_core::StoreError> {
    ///     jobs.history("nightly-report", &RunQuery::new().from(since).ending(Ending::Failed)).await
    /// }
    /// ```
    pub async fn history(&self, name: &str, query: &RunQuery) -> Result<Vec<PastRun>, StoreError> {
        match self.job(name).await? {
            Some(status) => Ok(query.select(status.runs)),
            None => Err(no_job(name)),
        }
    }

    /// Returns the past runs of all jobs whose names start with `prefix`, ordered by name, the latest run first.
    ///
    /// # Errors
    ///
    /// As for [`list`](Self::list).
    pub async fn histories(
        &self,
        prefix: &str,
        query: &RunQuery,
    ) -> Result<Vec<(LeaseKey, Vec<PastRun>)>, StoreError> {
        let jobs = self.list(prefix).await?;
        Ok(jobs.into_iter().map(|job| (job.name, query.select(job.runs))).collect())
    }

    /// Removes the mark of the job `name`, if a machine whose clock was ahead has written it. Ticks after the
    /// current time of this process's clock run again. Earlier ticks do not count.
    ///
    /// Set the clocks right first, and call this on a machine whose clock is right. All schedulers
    /// notice within a minute. If the mark is not ahead of this clock, nothing changes.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause).
    ///
    /// # Cancel safety
    ///
    /// Safe: the lease is released. The reset may have been applied or not.
    pub async fn reset_mark(&self, name: &str) -> Result<MarkReset, StoreError> {
        let key = self.existing(name).await?;
        let lease = match self.locker.obtain(&key).await? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => return Ok(MarkReset::Held(holder)),
        };
        let reset = self.reset_under(&lease).await;
        drop(lease.release().await);
        reset
    }

    async fn reset_under(&self, lease: &Lease) -> Result<MarkReset, StoreError> {
        let (record, now) = (JobRecord::read(lease.attributes())?, self.wall.now());
        let Some(mark) = record.accounted().filter(|mark| *mark > now) else {
            return Ok(MarkReset::NotAhead);
        };
        let mut tries = 0;
        loop {
            tries += 1;
            match lease.update(&*self.table, &job_record::reset(now)).await {
                Ok(Written::Lost(cause)) => {
                    let text = format!("the lease was lost: {cause}");
                    return Err(StoreError::new(StoreErrorKind::Unavailable, text));
                }
                Ok(_) => return Ok(MarkReset::Reset(mark)),
                Err(error) if tries < MOST_TRIES && error.is_retryable() && lease.is_held() => (),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until leases that were dropped are released. Call it at the end of a program.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only waits.
    pub async fn close(&self) {
        self.writer.close().await;
        self.locker.close().await;
    }

    /// Returns the key of the job `name`, if the table has its record.
    async fn existing(&self, name: &str) -> Result<LeaseKey, StoreError> {
        let key = key(name)?;
        let record = self.within(self.table.read(&key)).await?;
        match record {
            Some(record) if job_record::is_job(&record.attributes) => Ok(key),
            _ => Err(no_job(name)),
        }
    }
}

impl fmt::Debug for JobControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobControl").field("table", &self.table).finish_non_exhaustive()
    }
}

fn state_of(record: &ControlRecord, number: TriggerNumber) -> TriggerState {
    if record.request.as_ref().is_some_and(|request| request.number == number) {
        return TriggerState::Waiting;
    }
    let mut answers = record.answers();
    match answers.find(|answer| answer.number == number) {
        Some(answer) => TriggerState::Answered(answer.answer),
        None => TriggerState::Forgotten,
    }
}

fn key(name: &str) -> Result<LeaseKey, StoreError> {
    LeaseKey::new(name).map_err(refused)
}

fn refused(error: InvalidInput) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, error)
}

fn no_job(name: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, format!("no job has the name {name:?}"))
}

/// The time between two reads while a caller waits for an answer.
const BETWEEN_READS: Duration = Duration::from_millis(250);

const WITHDRAWN: TriggerState = TriggerState::Answered(TriggerAnswer::Withdrawn);

const WRITING: Duration = Duration::from_secs(5);

const MOST_TRIES: u32 = 3;

/// The maximum length of the reason for a pause, in characters.
const LONGEST_REASON: usize = 200;
