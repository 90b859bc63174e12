//! Starts machines that run the same jobs on one store in memory, and logs their bodies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use lease_core::conformance::{Fault, Faulty};
use lease_core::store::{BootClock, Clock, LeaseTable, Moment};
use lease_core::{FencingToken, LeaseKey, Locker};
use lease_memory::MemoryStore;
use lease_scheduler::{
    Job, JobContext, JobMetrics, JobResult, MissedTicks, Outcome, Run, Scheduler, SchedulerBuilder,
    SchedulerHandle, SkewedWallClock, Skip, TriggerNumber,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

pub(crate) const START: &str = "2026-11-21T00:00:00Z";

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) struct SchedulerHarness {
    pub(crate) store: MemoryStore,
    pub(crate) log: Log,
    start: Timestamp,
    created: Moment,
}

pub(crate) struct Machine {
    pub(crate) handle: SchedulerHandle,
    pub(crate) wall: Arc<SkewedWallClock>,
    pub(crate) reports: Arc<Reports>,
    /// A test can make requests on this connection fail.
    pub(crate) connection: Faulty<MemoryStore>,
    pub(crate) task: JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Reports {
    texts: Mutex<Vec<(Timestamp, String)>>,
    missed: Mutex<Vec<MissedTicks>>,
    ahead: Mutex<Duration>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Body>>>);

#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) by: String,
    pub(crate) scheduled: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) trigger: Option<TriggerNumber>,
    pub(crate) token: FencingToken,
    pub(crate) began: Moment,
    /// The time at which the body ended or was dropped. `None` while the body runs.
    pub(crate) ended: Option<Moment>,
    pub(crate) is_complete: bool,
}

impl SchedulerHarness {
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::counting_from_one(),
            log: Log::default(),
            start: at(START),
            created: BootClock::new().now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let gone = BootClock::new().now().since(self.created);
        self.start + SignedDuration::try_from(gone).unwrap()
    }

    pub(crate) async fn until(&self, time: &str) {
        sleep(Duration::try_from(at(time).duration_since(self.now())).unwrap()).await;
    }

    pub(crate) fn start(&self, name: &str, jobs: impl IntoIterator<Item = Job>) -> Machine {
        self.start_ahead(name, SignedDuration::ZERO, jobs)
    }

    pub(crate) fn start_ahead(
        &self,
        name: &str,
        ahead: SignedDuration,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Machine {
        let connection = Faulty::new(self.store.clone()).with_latency(Duration::from_millis(2));
        self.start_on(name, ahead, connection.clone(), connection, jobs)
    }

    pub(crate) fn start_on(
        &self,
        name: &str,
        ahead: SignedDuration,
        connection: Faulty<MemoryStore>,
        table: impl LeaseTable + Clone,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Machine {
        let (reports, wall) = (Arc::default(), SkewedWallClock::new(self.now() + ahead, 1.0));
        let wall = Arc::new(wall);
        let locker = Locker::new(table.clone()).with_lessee(name.parse().unwrap());
        let builder = Scheduler::builder(locker, table)
            .with_wall_clock(Arc::<SkewedWallClock>::clone(&wall))
            .with_metrics(Arc::<Reports>::clone(&reports));
        let builder = jobs.into_iter().fold(builder, SchedulerBuilder::with_job);
        let scheduler = builder.build().unwrap();
        let handle = scheduler.handle();
        Machine { handle, wall, reports, connection, task: tokio::spawn(scheduler.run()) }
    }

    pub(crate) async fn is_free(&self, job: &str) -> bool {
        let locker = Locker::new(self.store.clone());
        locker.obtain(&key(job)).await.unwrap().into_lease().is_some()
    }
}

impl Machine {
    /// None of the machine's requests arrives any more, as after a crash.
    pub(crate) fn crash(self) {
        self.connection.choose(|_| Some(Fault::Hang));
        self.task.abort();
    }

    pub(crate) async fn stop(self) {
        self.handle.stop();
        self.task.await.unwrap();
    }
}

impl Reports {
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap().iter().map(|(_, texts)| texts.clone()).collect()
    }

    pub(crate) fn missed(&self) -> Vec<MissedTicks> {
        self.missed.lock().unwrap().clone()
    }

    /// How far a marked tick was ahead of this machine's clock when the machine last reported it.
    pub(crate) fn ahead(&self) -> Duration {
        *self.ahead.lock().unwrap()
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for texts in self.texts() {
            let kind = texts.split(':').next().unwrap().to_owned();
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }
}

impl JobMetrics for Reports {
    fn ended(&self, run: &Run) {
        // The texts omit times, so that comparisons are short.
        let texts = match &run.outcome {
            Outcome::Skipped(Skip::AlreadyRan(_)) => "skipped: already ran".to_owned(),
            Outcome::Skipped(Skip::Held(holder)) => format!("skipped: held by {}", holder.lessee),
            Outcome::Missed(ticks) => {
                self.missed.lock().unwrap().push(*ticks);
                format!("missed: {}", ticks.count)
            }
            outcome => outcome.to_string(),
        };
        self.texts.lock().unwrap().push((run.scheduled, texts));
    }

    fn clock_ahead(&self, _job: &LeaseKey, ahead: Duration) {
        *self.ahead.lock().unwrap() = ahead;
    }
}

impl Log {
    pub(crate) fn body(
        &self,
        by: &str,
        length: Duration,
    ) -> impl Fn(JobContext) -> BoxFuture<'static, JobResult> + Send + Sync + 'static {
        self.body_of_lengths(by, move |_| length)
    }

    pub(crate) fn body_of_lengths(
        &self,
        by: &str,
        length: impl Fn(Timestamp) -> Duration + Send + Sync + 'static,
    ) -> impl Fn(JobContext) -> BoxFuture<'static, JobResult> + Send + Sync + 'static {
        let (log, by) = (self.clone(), by.to_owned());
        move |job| {
            let (log, by, length) = (log.clone(), by.clone(), length(job.scheduled()));
            Box::pin(async move {
                let mut guard = log.begin(&by, &job);
                sleep(length).await;
                guard.is_complete = true;
                Ok(())
            })
        }
    }

    pub(crate) fn begin(&self, by: &str, job: &JobContext) -> BodyGuard {
        let mut bodies = self.0.lock().unwrap();
        bodies.push(Body {
            by: by.to_owned(),
            scheduled: job.scheduled(),
            attempt: job.attempt(),
            trigger: job.trigger(),
            token: job.token(),
            began: BootClock::new().now(),
            ended: None,
            is_complete: false,
        });
        BodyGuard { log: self.clone(), number: bodies.len() - 1, is_complete: false }
    }

    pub(crate) fn bodies(&self) -> Vec<Body> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn ticks(&self) -> BTreeMap<Timestamp, usize> {
        let mut ticks = BTreeMap::new();
        for body in self.bodies() {
            *ticks.entry(body.scheduled).or_default() += 1;
        }
        ticks
    }

    pub(crate) fn overlaps(&self) -> usize {
        let bodies = self.bodies();
        let overlap = |pair: &[Body]| pair[0].ended.is_none_or(|ended| ended > pair[1].began);
        bodies.windows(2).filter(|pair| overlap(pair)).count()
    }
}

/// A drop of the guard logs the end of a body, even if the body is dropped.
pub(crate) struct BodyGuard {
    log: Log,
    number: usize,
    pub(crate) is_complete: bool,
}

impl Drop for BodyGuard {
    fn drop(&mut self) {
        let mut bodies = self.log.0.lock().unwrap();
        bodies[self.number].ended = Some(BootClock::new().now());
        bodies[self.number].is_complete = self.is_complete;
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("reports", &self.reports).finish_non_exhaustive()
    }
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn key(text: &str) -> LeaseKey {
    text.parse().unwrap()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
