//! Runs a nightly job on three machines. Prints which machine ran the job, the results of the other
//! machines, and the next due time.
//!
//! In tokio's paused time, four nights pass in milliseconds. An application omits `start_paused`
//! and `with_wall_clock`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use jiff::{SignedDuration, Timestamp};
use lease_core::Locker;
use lease_examples::{Failure, exit, print_line};
use lease_memory::MemoryStore;
use lease_scheduler::{
    Job, JobContext, JobMetrics, JobResult, Run, Schedule, Scheduler, SchedulerHandle,
    SkewedWallClock,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Runs a job each night on one of three machines, and prints the results of four nights.
#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// The schedule: minute, hour, day of the month, month, day of the week.
    #[arg(long, default_value = "30 2 * * *", value_name = "EXPRESSION")]
    cron: String,
    /// The time zone of the schedule, by its IANA name.
    #[arg(long, default_value = "Europe/Berlin")]
    zone: String,
    /// An interval in seconds, instead of a cron expression.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, conflicts_with = "cron")]
    every: Option<f64>,
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    exit("nightly_job", run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let schedule = schedule(&arguments)?;
    let store = MemoryStore::counting_from_one(); // represents your Redis, or your DynamoDB table
    let noon: Timestamp = "2026-03-27T12:00:00Z".parse()?;
    let mut machines = JoinSet::new();
    let mut handles = Vec::new();
    for (name, ahead) in [("alpha", 0), ("beta", 20), ("gamma", -40)] {
        let now = noon + SignedDuration::from_secs(ahead);
        let scheduler = machine(name, now, schedule.clone(), &store)?;
        handles.push(scheduler.handle());
        machines.spawn(scheduler.run());
    }

    for _night in 0..4 {
        sleep(Duration::from_hours(24)).await;
        report_status(&handles, &arguments.zone).await?;
    }
    for handle in &handles {
        handle.stop();
    }
    machines.join_all().await;
    Ok(ExitCode::SUCCESS)
}

fn schedule(arguments: &Arguments) -> Result<Schedule, Failure> {
    let Some(seconds) = arguments.every else {
        return Ok(Schedule::cron(&arguments.cron, &arguments.zone)?);
    };
    let interval = Duration::try_from_secs_f64(seconds)
        .map_err(|_no_length| format!("interval {seconds:?} is not a length in seconds"))?;
    Ok(Schedule::every(interval)?)
}

/// The machines differ only in their clocks.
fn machine(
    name: &'static str,
    now: Timestamp,
    schedule: Schedule,
    store: &MemoryStore,
) -> Result<Scheduler, Failure> {
    let nightly = Job::new("nightly-report".parse()?, report)
        .on(schedule)
        .lease_ttl(Duration::from_secs(30))? // after a crash, the lease expires in 30 s
        .min_hold(Duration::from_mins(2))?; // after a short run, the key stays reserved

    let locker = Locker::new(store.clone()).with_lessee(name.parse()?);
    let scheduler = Scheduler::builder(locker, store.clone())
        .with_job(nightly)
        .with_wall_clock(Arc::new(SkewedWallClock::new(now, 1.0)))
        .with_metrics(Arc::new(Machine { name }))
        .build()?;
    Ok(scheduler)
}

async fn report(job: JobContext) -> JobResult {
    sleep(Duration::from_secs(45)).await; // longer than the ttl: heartbeats extend the lease
    if job.scheduled().as_second() / 86_400 % 3 == 0 {
        return Err("the printer is out of paper".into());
    }
    job.note("17 reports");
    Ok(())
}

async fn report_status(handles: &[SchedulerHandle], zone: &str) -> Result<(), Failure> {
    let [handle, ..] = handles else { return Ok(()) };
    if let Some(run) = handle.last_run("nightly-report").await? {
        print_line(format_args!("  last run: {:?} by {}, {:?}", run.ending, run.by, run.note));
    }
    match handle.next_due("nightly-report")? {
        Some(next) => print_line(format_args!("  next due: {}\n", next.in_tz(zone)?)),
        None => print_line("  next due: never\n"),
    }
    Ok(())
}

/// Prints the result of each run. An application would count the results.
#[derive(Debug)]
struct Machine {
    name: &'static str,
}

impl JobMetrics for Machine {
    fn ended(&self, run: &Run) {
        let took = run.body.as_ref().map(|body| {
            format!(", {:?} late, in {:?}, under token {}", body.latency, body.run_time, body.token)
        });
        print_line(format_args!("{:<6} {}{}", self.name, run.outcome, took.unwrap_or_default()));
    }
}
