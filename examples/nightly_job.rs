//! A nightly job on three machines: which of them ran it, what the others say, when it is next due.
//!
//! Time is tokio's, and paused: nights pass as fast as the program can await them. On a machine of
//! yours, leave the clock and `start_paused` away.
#![expect(clippy::print_stdout, reason = "this is what the example shows")]

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::Locker;
use lease_memory::MemoryStore;
use lease_scheduler::{
    Job, JobContext, JobError, JobMetrics, JobResult, Run, Schedule, Scheduler, SchedulerHandle,
    SkewedWallClock,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), JobError> {
    let store = MemoryStore::counting_from_one(); // stands for your Redis, or your DynamoDB table
    let noon: Timestamp = "2026-03-27T12:00:00Z".parse()?;
    let mut machines = JoinSet::new();
    let mut handles = Vec::new();
    for (name, ahead) in [("alpha", 0), ("beta", 20), ("gamma", -40)] {
        let scheduler = machine(name, noon + SignedDuration::from_secs(ahead), &store)?;
        handles.push(scheduler.handle());
        machines.spawn(scheduler.run());
    }

    for _night in 0..4 {
        sleep(Duration::from_secs(86_400)).await;
        look(&handles).await?;
    }
    for handle in &handles {
        handle.stop();
    }
    machines.join_all().await;
    Ok(())
}

/// One of three that are set up alike, but for their clocks.
fn machine(name: &'static str, now: Timestamp, store: &MemoryStore) -> Result<Scheduler, JobError> {
    let nightly = Job::new("nightly-report".parse()?, report)
        .on(Schedule::cron("30 2 * * *", "Europe/Berlin")?)
        .at_most(Duration::from_secs(30))? // how long nobody else can begin after a crash
        .at_least(Duration::from_secs(120))?; // how long nobody else can begin after a short run

    let locker = Locker::new(store.clone()).with_lessee(name.parse()?);
    let scheduler = Scheduler::builder(locker, store.clone())
        .with_job(nightly)
        .with_wall_clock(Arc::new(SkewedWallClock::new(now, 1.0)))
        .with_metrics(Arc::new(Machine { name }))
        .build()?;
    Ok(scheduler)
}

async fn report(job: JobContext) -> JobResult {
    sleep(Duration::from_secs(45)).await; // longer than the lease lasts by itself
    if job.scheduled().as_second() / 86_400 % 3 == 0 {
        return Err("the printer is out of paper".into());
    }
    job.note("17 reports");
    Ok(())
}

async fn look(handles: &[SchedulerHandle]) -> Result<(), JobError> {
    let [handle, ..] = handles else { return Ok(()) };
    if let Some(run) = handle.last_run("nightly-report").await? {
        println!("  last run: {:?} by {}, {:?}", run.ending, run.by, run.note);
    }
    if let Some(next) = handle.next_due("nightly-report")? {
        println!("  next due: {}\n", next.in_tz("Europe/Berlin")?);
    }
    Ok(())
}

/// Prints what comes of runs, where others would count them.
#[derive(Debug)]
struct Machine {
    name: &'static str,
}

impl JobMetrics for Machine {
    fn ended(&self, run: &Run) {
        let took = run.body.as_ref().map(|body| {
            format!(", {:?} late, in {:?}, under token {}", body.latency, body.run_time, body.token)
        });
        println!("{:<6} {}{}", self.name, run.outcome, took.unwrap_or_default());
    }
}
