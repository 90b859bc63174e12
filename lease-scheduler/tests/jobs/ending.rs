//! The ends of runs: their reports, the history, and the release of the lease.

use std::time::Duration;

use lease_core::Locker;
use lease_core::conformance::{Call, Fault};
use lease_core::store::{LeaseTable, LockStore};
use lease_scheduler::{Ending, Job, JobError, Outcome, Schedule, Scheduler, Skip};
use tokio::time::{sleep, timeout};

use crate::harness::{SchedulerHarness, TTL, key, secs};

#[tokio::test(start_paused = true)]
async fn failed_or_panicked_body_releases_lease() {
    let harness = SchedulerHarness::new();
    let fails = Job::new(key("fails"), |_job| async { Err(JobError::from("no such table")) });
    let panics = Job::new(key("panics"), |_job| async { panic!("index out of bounds") });
    let panics_at_once = Job::new(key("panics at once"), |job| {
        assert!(job.attempt() > 1, "attempt {}", job.attempt());
        async { Ok(()) }
    });
    let machine = harness.start("a", [fails, panics, panics_at_once]);

    for (job, why) in [
        ("fails", "failed: no such table"),
        ("panics", "failed: the body panicked: index out of bounds"),
        ("panics at once", "failed: the body panicked: attempt 1"),
    ] {
        let run = machine.handle.run_now(job).await.unwrap();
        assert_eq!(run.outcome.to_string(), why);
        assert!(harness.is_free(job).await, "{job}");
        let past = machine.handle.last_run(job).await.unwrap().unwrap();
        assert_eq!(past.ending, Ending::Failed);
        assert_eq!(format!("failed: {}", past.note), why);
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_run_releases_lease() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [Job::new(key("job"), harness.log.body("a", secs(100)))]);

    timeout(secs(10), machine.handle.run_now("job")).await.unwrap_err();
    sleep(secs(1)).await;

    assert!(harness.is_free("job").await);
    let body = &harness.log.bodies()[0];
    assert_eq!(body.ended.unwrap().since(body.began).as_secs(), 9, "10 s after the request");
}

#[tokio::test(start_paused = true)]
async fn dropped_scheduler_releases_leases() {
    let harness = SchedulerHarness::new();
    let each_minute = Schedule::cron("* * * * *", "UTC").unwrap();
    let job = Job::new(key("job"), harness.log.body("a", secs(100))).on(each_minute);
    let machine = harness.start("a", [job]);
    harness.until("2026-11-21T00:01:10Z").await;
    assert!(!harness.is_free("job").await);

    machine.task.abort();
    sleep(secs(1)).await;

    assert!(harness.is_free("job").await);
    assert!(harness.log.bodies()[0].ended.is_some());
}

#[tokio::test(start_paused = true)]
async fn stopping_scheduler_lets_bodies_end_and_starts_none() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [Job::new(key("job"), harness.log.body("a", secs(20)))]);
    let handle = machine.handle.clone();
    let running = tokio::spawn(async move { handle.run_now("job").await });
    sleep(secs(1)).await;

    machine.handle.stop();
    let run = machine.handle.run_now("job").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Skipped(Skip::Stopping)), "{run:?}");
    machine.task.await.unwrap();

    assert!(matches!(running.await.unwrap().unwrap().outcome, Outcome::Finished));
    assert!(harness.is_free("job").await);
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn body_is_cancelled_when_scheduler_stops() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), |job| async move {
        job.cancelled().cancelled().await;
        job.note("wound down");
        Ok(())
    });
    let machine = harness.start("a", [job]);
    let handle = machine.handle.clone();
    let running = tokio::spawn(async move { handle.run_now("job").await });
    sleep(secs(1)).await;

    machine.stop().await;

    let run = running.await.unwrap().unwrap();
    assert!(matches!(run.outcome, Outcome::Finished));
    assert_eq!(run.body.unwrap().note, "wound down");
}

#[tokio::test(start_paused = true)]
async fn body_is_dropped_after_grace_and_releases_lease() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1000)));
    let locker = Locker::new(harness.store.clone());
    let scheduler = Scheduler::builder(locker, harness.store.clone())
        .with_job(job)
        .with_grace(secs(5))
        .build()
        .unwrap();
    let handle = scheduler.handle();
    let asking = handle.clone();
    let running = tokio::spawn(async move { asking.run_now("job").await });
    sleep(secs(1)).await;

    handle.stop();
    scheduler.run().await;

    let run = running.await.unwrap().unwrap();
    assert_eq!(
        run.outcome.to_string(),
        "failed: the scheduler stopped, and the body still ran after 5s",
    );
    assert_eq!(run.body.unwrap().run_time, secs(6));
    assert!(harness.is_free("job").await);
}

#[tokio::test(start_paused = true)]
async fn body_longer_than_ttl_keeps_lease() {
    let harness = SchedulerHarness::new();
    let job =
        |by, length| Job::new(key("job"), harness.log.body(by, length)).lease_ttl(secs(5)).unwrap();
    let (a, b) =
        (harness.start("a", [job("a", secs(300))]), harness.start("b", [job("b", secs(1))]));
    let running = tokio::spawn(async move { a.handle.run_now("job").await });

    for _ in 0..29 {
        sleep(secs(10)).await;
        let run = b.handle.run_now("job").await.unwrap();
        assert!(matches!(run.outcome, Outcome::Skipped(Skip::Held(_))), "{run:?}");
    }

    assert!(matches!(running.await.unwrap().unwrap().outcome, Outcome::Finished));
    assert_eq!(harness.log.count(), 1);
}

/// The run of the dropped body reports `Lost`. The bodies of the two machines do not overlap.
#[tokio::test(start_paused = true)]
async fn body_is_dropped_before_successor_can_start() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(300)));
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    let connection = a.connection.clone();
    let running = tokio::spawn(async move { (a.handle.run_now("job").await, a) });
    sleep(secs(1)).await;

    connection.choose(|_| Some(Fault::Hang));
    let began = loop {
        sleep(Duration::from_millis(50)).await;
        let attempt = timeout(secs(1), b.handle.run_now("job")).await;
        if attempt.is_err() {
            break harness.log.bodies()[1].began;
        }
    };

    let (run, _a) = running.await.unwrap();
    assert!(matches!(run.unwrap().outcome, Outcome::Lost(_)));
    let first = &harness.log.bodies()[0];
    assert!(first.ended.unwrap() < began, "{:?}", harness.log.bodies());
    assert!(began.since(first.began) <= TTL + secs(2), "it started late");
}

#[tokio::test(start_paused = true)]
async fn lost_lease_is_not_released_for_its_successor() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(60)));
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    let connection = a.connection.clone();
    let running = tokio::spawn(async move { (a.handle.run_now("job").await, a) });
    sleep(secs(1)).await;
    connection.choose(|_| Some(Fault::DelayRequest(Duration::from_secs(45))));
    sleep(secs(31)).await;

    let of_b = tokio::spawn(async move { b.handle.run_now("job").await });
    sleep(secs(50)).await; // all requests of the first machine have arrived
    let holder = harness.store.holder(&key("job")).await.unwrap().unwrap();

    assert_eq!(holder.lessee.as_str(), "b");
    assert!(matches!(running.await.unwrap().0.unwrap().outcome, Outcome::Lost(_)));
    assert!(matches!(of_b.await.unwrap().unwrap().outcome, Outcome::Finished));
}

#[tokio::test(start_paused = true)]
async fn failed_mark_runs_nothing_and_releases_lease() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [Job::new(key("job"), harness.log.body("a", secs(1)))]);
    machine.connection.every(Call::Write, Fault::Fail);

    let run = machine.handle.run_now("job").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Skipped(Skip::Unknown(_))), "{run:?}");
    assert_eq!(harness.log.count(), 0);
    assert!(harness.is_free("job").await);
}

#[tokio::test(start_paused = true)]
async fn mark_with_lost_answer_is_recognised() {
    let harness = SchedulerHarness::new();
    let each_minute = Schedule::cron("* * * * *", "UTC").unwrap();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(each_minute);
    let machine = harness.start("a", [job]);
    sleep(secs(30)).await;
    machine.connection.next(Call::Write, Fault::LoseReply);

    sleep(secs(60)).await;

    assert_eq!(machine.reports.texts(), ["finished"]);
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_run_has_a_larger_token() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1)));
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));

    for machine in [&a, &b, &a, &b] {
        machine.handle.run_now("job").await.unwrap();
    }

    let tokens: Vec<_> = harness.log.bodies().iter().map(|body| body.token).collect();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_key_after_short_run() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).min_hold(secs(60)).unwrap();
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    a.handle.run_now("job").await.unwrap();

    sleep(secs(58)).await;
    let run = b.handle.run_now("job").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Skipped(Skip::Held(_))), "{run:?}");
    sleep(secs(2)).await;
    let run = b.handle.run_now("job").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Finished), "{run:?}");
}

#[tokio::test(start_paused = true)]
async fn history_has_last_ten_runs_with_their_lessees() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1)));
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    for machine in [&a, &b, &a, &a, &b, &a, &b, &b, &a, &b, &a, &b] {
        machine.handle.run_now("job").await.unwrap();
    }

    let history = b.handle.history("job").await.unwrap();

    let by: String = history.iter().map(|run| run.by.as_str()).collect();
    assert_eq!(by, "bababbabaa");
    assert!(history.iter().all(|run| run.ending == Ending::Finished));
    assert!(history.is_sorted_by(|later, earlier| later.token > earlier.token));
    let record = harness.store.read(&key("job")).await.unwrap().unwrap();
    assert!(!record.attributes.contains_key("job_tick"), "a run on demand marks no tick");
}
