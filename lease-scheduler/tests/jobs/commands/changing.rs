//! Jobs that are added and removed while their scheduler runs.

use lease_core::Locker;
use lease_scheduler::{Ending, Job, Scheduler};
use tokio::time::sleep;

use crate::commands::{hourly, job, operator, trigger};
use crate::harness::{SchedulerHarness, at, key, secs};

#[tokio::test(start_paused = true)]
async fn added_job_runs_its_next_tick_and_its_triggers() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", []);
    harness.until("2026-11-21T01:30:00Z").await;

    machine.handle.add_job(job(&harness, "a", secs(1)).on(hourly())).unwrap();
    assert!(machine.handle.add_job(job(&harness, "a", secs(1))).is_err(), "the name is taken");
    sleep(secs(1)).await;
    let control = operator(&harness);
    let number = trigger(&control).await;
    control.wait_for_answer("job", number).await.unwrap();
    harness.until("2026-11-21T02:30:00Z").await;

    assert_eq!(machine.handle.job_names().len(), 1);
    let ticks: Vec<_> = harness.log.ticks().into_keys().collect();
    assert_eq!((ticks.len(), ticks[1]), (2, at("2026-11-21T02:00:00Z")));
    machine.stop().await;
}

/// The record `job/control` has the commands of the job `job`.
#[tokio::test(start_paused = true)]
async fn job_with_key_of_control_record_is_rejected() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let other = || Job::new(key("job/control"), harness.log.body("a", secs(1)));

    assert!(machine.handle.add_job(other()).is_err());
    let builder = Scheduler::builder(Locker::new(harness.store.clone()), harness.store.clone());
    assert!(builder.with_job(other()).build().is_err());
}

#[tokio::test(start_paused = true)]
async fn removed_job_ends_its_run_and_starts_none_until_added_again() {
    let harness = SchedulerHarness::new();
    let hourly_job = || job(&harness, "a", secs(1800)).on(hourly());
    let machine = harness.start("a", [hourly_job()]);
    harness.until("2026-11-21T01:10:00Z").await;

    assert!(machine.handle.remove_job("job").await);
    let grace = harness.now().duration_since(at("2026-11-21T01:10:00Z")).as_secs();
    assert_eq!(grace, 30, "the body has 30 s of grace");
    assert!(harness.is_free("job").await);
    assert!(!machine.handle.remove_job("job").await);
    assert!(machine.handle.run_now("job").await.is_err());
    harness.until("2026-11-21T03:10:00Z").await;
    assert_eq!(harness.log.count(), 1);
    machine.handle.add_job(hourly_job()).unwrap();
    harness.until("2026-11-21T04:50:00Z").await;

    let runs = machine.handle.history("job").await.unwrap();
    let endings: Vec<_> = runs.iter().map(|run| run.ending).collect();
    assert_eq!(endings, [Ending::Finished, Ending::Missed, Ending::Failed]);
    machine.stop().await;
}
