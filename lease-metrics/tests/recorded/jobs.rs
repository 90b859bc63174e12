//! Schedulers whose jobs fail, whose store is down, or whose clock is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_core::Locker;
use lease_core::conformance::{Fault, Faulty};
use lease_memory::MemoryStore;
use lease_metrics::SchedulerMetrics;
use lease_scheduler::jiff::{SignedDuration, Timestamp};
use lease_scheduler::{
    Job, JobContext, JobResult, MarkReset, Schedule, Scheduler, SchedulerHandle, SkewedWallClock,
    WallClock,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::recording::{Recording, mins};

pub(crate) const ALERTS: &[&[&str]] = &[FAILED, MISSED, AHEAD];
const FAILED: &[&str] = &["JobFailed"];
const MISSED: &[&str] = &["JobMissed"];
const AHEAD: &[&str] = &["JobClockAhead", "JobMissed"];

/// Machines that run the job `report` every five minutes.
struct Fleet {
    recording: Recording,
    store: MemoryStore,
    clock: SkewedWallClock,
    fails: Arc<AtomicBool>,
}

struct Machine {
    handle: SchedulerHandle,
    connection: Faulty<MemoryStore>,
    task: JoinHandle<()>,
}

impl Fleet {
    fn new() -> Self {
        let start: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        Self {
            recording: Recording::start(),
            store: MemoryStore::new(),
            clock: SkewedWallClock::new(start, 1.0),
            fails: Arc::default(),
        }
    }

    fn start(&mut self, name: &str) -> Machine {
        self.start_ahead(name, SignedDuration::ZERO)
    }

    /// Starts a machine whose clock is ahead.
    fn start_ahead(&mut self, name: &str, ahead: SignedDuration) -> Machine {
        let metrics =
            self.recording.process(name).with_metrics(|| SchedulerMetrics::new(["report"]));
        let connection = Faulty::new(self.store.clone()).with_latency(Duration::from_millis(2));
        let locker = Locker::new(connection.clone()).with_lessee(name.parse().unwrap());
        let wall = SkewedWallClock::new(self.clock.now() + ahead, 1.0);
        let fails = Arc::clone(&self.fails);
        let job = Job::new("report".parse().unwrap(), move |job| report(job, Arc::clone(&fails)));
        let scheduler = Scheduler::builder(locker, connection.clone())
            .with_wall_clock(Arc::new(wall))
            .with_metrics(Arc::new(metrics))
            .with_job(job.on(Schedule::cron("*/5 * * * *", "UTC").unwrap()))
            .build()
            .unwrap();
        Machine { handle: scheduler.handle(), connection, task: tokio::spawn(scheduler.run()) }
    }
}

impl Machine {
    fn cut_off(&self) {
        self.connection.choose(|_| Some(Fault::Hang));
    }

    fn heal(&self) {
        self.connection.heal();
    }
}

async fn report(_job: JobContext, fails: Arc<AtomicBool>) -> JobResult {
    sleep(Duration::from_secs(20)).await;
    if fails.load(Ordering::SeqCst) { Err("no database".into()) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn healthy_jobs_fire_no_alert() {
    let mut fleet = Fleet::new();
    let _machines = ["a", "b"].map(|name| fleet.start(name));

    fleet.recording.run_for(mins(40)).await;

    fleet.recording.expect_none_so_far();
    fleet.recording.check(&[]);
}

#[tokio::test(start_paused = true)]
async fn failed_run_is_reported() {
    let mut fleet = Fleet::new();
    let _machines = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    fleet.fails.store(true, Ordering::SeqCst);
    fleet.recording.run_for(mins(4)).await;
    fleet.recording.expect(&[("JobFailed", r#"job_name="report""#)]);
    fleet.fails.store(false, Ordering::SeqCst);
    fleet.recording.run_for(mins(20)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(FAILED);
}

#[tokio::test(start_paused = true)]
async fn crash_during_run_is_reported() {
    let mut fleet = Fleet::new();
    let only = fleet.start("a");
    fleet.recording.run_for(mins(15)).await;
    fleet.recording.expect_none_so_far();
    fleet.recording.run_for(Duration::from_secs(15)).await;

    // The body runs now.
    only.cut_off();
    only.task.abort();
    fleet.recording.end("a");
    let _other = fleet.start("b");
    fleet.recording.run_for(mins(7)).await;
    fleet.recording.expect(&[("JobFailed", r#"job_name="report""#)]);
    fleet.recording.run_for(mins(20)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(FAILED);
}

#[tokio::test(start_paused = true)]
async fn outage_over_tick_is_reported_as_missed() {
    let mut fleet = Fleet::new();
    let machines = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    machines.iter().for_each(Machine::cut_off);
    fleet.recording.run_for(mins(6)).await;
    machines.iter().for_each(Machine::heal);
    fleet.recording.run_for(mins(4)).await;
    fleet.recording.expect(&[("JobMissed", r#"job_name="report""#)]);
    fleet.recording.run_for(mins(20)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(MISSED);
}

#[tokio::test(start_paused = true)]
async fn mark_of_clock_ahead_is_reported_until_reset() {
    let mut fleet = Fleet::new();
    let machines = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    let ahead = fleet.start_ahead("ahead", SignedDuration::from_hours(1));
    fleet.recording.run_for(mins(4)).await;
    ahead.handle.stop();
    ahead.task.await.unwrap();
    fleet.recording.end("ahead");
    fleet.recording.run_for(mins(5)).await;
    // By the clock that is ahead, no machine started the ticks of an hour.
    fleet.recording.expect(&[
        ("JobClockAhead", r#"job_name="report""#),
        ("JobMissed", r#"job_name="report""#),
    ]);
    let [machine, _other] = &machines;
    let reset = machine.handle.reset_mark("report").await.unwrap();
    assert!(matches!(reset, MarkReset::Reset(_)), "{reset:?}");
    fleet.recording.run_for(mins(20)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(AHEAD);
}
