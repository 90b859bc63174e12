//! Lists of jobs, their next ticks, and queries of their histories.

use std::time::Duration;

use lease_core::StoreErrorKind;
use lease_scheduler::{Ending, Job, JobError, RunQuery, Schedule};

use crate::commands::{hourly, job, operator};
use crate::harness::{SchedulerHarness, at, key, secs};

#[tokio::test(start_paused = true)]
async fn list_has_next_ticks_and_current_run_of_each_job() {
    let harness = SchedulerHarness::new();
    let jitter = Schedule::every_with_jitter(secs(600), secs(300)).unwrap();
    let jobs = [
        job(&harness, "a", secs(1800)).on(hourly()),
        Job::new(key("jobs/jittered"), harness.log.body("a", secs(1))).on(jitter),
        Job::new(key("other"), harness.log.body("a", secs(1))),
    ];
    let machine = harness.start("a", jobs);
    let control = operator(&harness);

    harness.until("2026-11-21T01:10:00Z").await;

    let names = async |prefix| {
        let jobs = control.list(prefix).await.unwrap();
        jobs.iter().map(|job| job.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["job", "jobs/jittered", "other"]);
    assert_eq!(names("job").await, ["job", "jobs/jittered"]);
    let jobs = control.list("").await.unwrap();
    let ticks = ["2026-11-21T02:00:00Z", "2026-11-21T03:00:00Z"].map(at);
    assert_eq!(jobs[0].next_ticks(2), ticks);
    assert_eq!(jobs[0].running().unwrap().by, "a");
    assert_eq!(jobs[0].holder.as_ref().unwrap().lessee.as_str(), "a");
    let next = machine.handle.next_due("jobs/jittered").unwrap().unwrap();
    assert_eq!(jobs[1].next_ticks(1), [next], "the same jitter as in the scheduler");
    assert_eq!((jobs[2].next_ticks(1).len(), jobs[2].runs.len()), (0, 0));
    let own = machine.handle.jobs().await.unwrap();
    assert_eq!(own.len(), 3);
    assert_eq!(own[0].next_ticks(2), ticks);
}

#[tokio::test(start_paused = true)]
async fn list_shows_mark_ahead_and_operator_resets_it() {
    let harness = SchedulerHarness::new();
    harness.until("2026-11-21T00:58:00Z").await;
    let ahead = jiff::SignedDuration::from_hours(23);
    let machine = harness.start_ahead("a", ahead, [job(&harness, "a", secs(1)).on(hourly())]);
    let control = operator(&harness);
    harness.until("2026-11-21T01:10:00Z").await;
    machine.stop().await;
    let status = control.job("job").await.unwrap().unwrap();
    assert_eq!(status.mark_ahead, Some(at("2026-11-22T00:00:00Z")));
    assert_eq!(status.next_ticks(1), [at("2026-11-22T01:00:00Z")], "no tick before");

    control.reset_mark("job").await.unwrap();

    let status = control.job("job").await.unwrap().unwrap();
    assert_eq!((status.mark_ahead, status.next_ticks(1)), (None, vec![at("2026-11-21T02:00:00Z")]));
    let _right = harness.start("right", [job(&harness, "right", secs(1)).on(hourly())]);
    harness.until("2026-11-21T02:10:00Z").await;
    assert_eq!(harness.log.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn history_is_queried_by_job_time_and_ending() {
    let harness = SchedulerHarness::new();
    let fails_at_two = |job: lease_scheduler::JobContext| async move {
        let is_two = job.scheduled() == at("2026-11-21T02:00:00Z");
        if is_two { Err(JobError::from("no such table")) } else { Ok(()) }
    };
    let jobs = ["job", "other"].map(|name| Job::new(key(name), fails_at_two).on(hourly()));
    let _machine = harness.start("a", jobs);
    let control = operator(&harness);
    harness.until("2026-11-21T04:30:00Z").await;
    let hours = async |query| {
        let runs = control.history("job", &query).await.unwrap();
        runs.iter().map(|run| run.scheduled.strftime("%H").to_string()).collect::<Vec<_>>()
    };

    let all = RunQuery::new();
    assert_eq!(hours(all.clone()).await, ["04", "03", "02", "01"]);
    assert_eq!(hours(all.clone().from(at("2026-11-21T03:00:00Z"))).await, ["04", "03"]);
    assert_eq!(hours(all.clone().until(at("2026-11-21T03:00:00Z"))).await, ["02", "01"]);
    assert_eq!(hours(all.clone().ending(Ending::Failed)).await, ["02"]);
    assert_eq!(hours(all.clone().limit(1)).await, ["04"]);
    let histories = control.histories("", &all.ending(Ending::Failed)).await.unwrap();
    let counts: Vec<_> = histories.iter().map(|(name, runs)| (name.as_str(), runs.len())).collect();
    assert_eq!(counts, [("job", 1), ("other", 1)]);
    let unknown = control.history("none", &RunQuery::new()).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn history_keeps_as_many_runs_as_the_job_says() {
    let harness = SchedulerHarness::new();
    let length = Duration::from_secs(1);
    let long = job(&harness, "a", length).on(hourly()).history_length(24).unwrap();
    let short = Job::new(key("short"), harness.log.body("a", length)).on(hourly());
    let _machine = harness.start("a", [long, short.history_length(2).unwrap()]);
    let control = operator(&harness);

    harness.until("2026-11-22T12:30:00Z").await;

    let count = async |job| control.history(job, &RunQuery::new()).await.unwrap().len();
    assert_eq!((count("job").await, count("short").await), (24, 2));
    for wrong in [0, 201] {
        assert!(job(&harness, "a", length).history_length(wrong).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn run_of_dead_machine_is_listed_as_died() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(3600)).on(hourly())]);
    let control = operator(&harness);
    harness.until("2026-11-21T01:10:00Z").await;
    machine.crash();
    assert!(control.job("job").await.unwrap().unwrap().running().is_some(), "its lease is held");

    harness.until("2026-11-21T01:11:00Z").await;

    let status = control.job("job").await.unwrap().unwrap();
    assert_eq!((status.runs[0].ending, status.running()), (Ending::Died, None));
}
