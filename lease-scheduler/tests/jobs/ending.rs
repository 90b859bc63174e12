//! Every way out: what is told, what is written, and that the lease is given back.

use std::time::Duration;

use lease_core::conformance::{Call, Fault};
use lease_core::{LeaseTable, LockStore, Locker};
use lease_scheduler::{Ending, Job, JobError, Outcome, Schedule, Scheduler, Skip};
use tokio::time::{sleep, timeout};

use crate::world::{TTL, World, key, secs};

/// Fault 4: whoever raised never released.
#[tokio::test(start_paused = true)]
async fn a_body_that_fails_or_panics_gives_its_lease_back() {
    let world = World::new();
    let fails = Job::new(key("fails"), |_job| async { Err(JobError::from("no such table")) });
    let panics = Job::new(key("panics"), |_job| async { panic!("index out of bounds") });
    let panics_at_once = Job::new(key("panics at once"), |job| {
        assert!(job.attempt() > 1, "attempt {}", job.attempt());
        async { Ok(()) }
    });
    let machine = world.start("a", [fails, panics, panics_at_once]);

    for (job, why) in [
        ("fails", "failed: no such table"),
        ("panics", "failed: the body panicked: index out of bounds"),
        ("panics at once", "failed: the body panicked: attempt 1"),
    ] {
        let run = machine.handle.run_now(job).await.unwrap();
        assert_eq!(run.outcome.to_string(), why);
        assert!(world.is_free(job).await, "{job}");
        let past = machine.handle.last_run(job).await.unwrap().unwrap();
        assert_eq!(past.ending, Ending::Failed);
        assert_eq!(format!("failed: {}", past.note), why);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_gives_its_lease_back() {
    let world = World::new();
    let machine = world.start("a", [Job::new(key("job"), world.log.body("a", secs(100)))]);

    timeout(secs(10), machine.handle.run_now("job")).await.unwrap_err();
    sleep(secs(1)).await;

    assert!(world.is_free("job").await);
    let body = &world.log.bodies()[0];
    assert_eq!(body.ended.unwrap().since(body.began).as_secs(), 9, "after 10 s, less the asking");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_dropped_gives_its_leases_back() {
    let world = World::new();
    let each_minute = Schedule::cron("* * * * *", "UTC").unwrap();
    let job = Job::new(key("job"), world.log.body("a", secs(100))).on(each_minute);
    let machine = world.start("a", [job]);
    world.until("2026-11-21T00:01:10Z").await;
    assert!(!world.is_free("job").await);

    machine.task.abort();
    sleep(secs(1)).await;

    assert!(world.is_free("job").await);
    assert!(world.log.bodies()[0].ended.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_stops_lets_bodies_end_and_begins_nothing() {
    let world = World::new();
    let machine = world.start("a", [Job::new(key("job"), world.log.body("a", secs(20)))]);
    let handle = machine.handle.clone();
    let running = tokio::spawn(async move { handle.run_now("job").await });
    sleep(secs(1)).await;

    machine.handle.stop();
    let run = machine.handle.run_now("job").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Skipped(Skip::Stopping)), "{run:?}");
    machine.task.await.unwrap();

    assert!(matches!(running.await.unwrap().unwrap().outcome, Outcome::Finished));
    assert!(world.is_free("job").await);
    assert_eq!(world.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_told_that_the_scheduler_stops_and_may_wind_down() {
    let world = World::new();
    let job = Job::new(key("job"), |job| async move {
        job.cancelled().cancelled().await;
        job.note("wound down");
        Ok(())
    });
    let machine = world.start("a", [job]);
    let handle = machine.handle.clone();
    let running = tokio::spawn(async move { handle.run_now("job").await });
    sleep(secs(1)).await;

    machine.stop().await;

    let run = running.await.unwrap().unwrap();
    assert!(matches!(run.outcome, Outcome::Finished));
    assert_eq!(run.body.unwrap().note, "wound down");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_done_within_the_grace_is_dropped_and_its_lease_given_back() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(1000)));
    let locker = Locker::new(world.store.clone());
    let scheduler = Scheduler::builder(locker, world.store.clone())
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
        "failed: the scheduler stopped, and the body was not done within 5s",
    );
    assert_eq!(run.body.unwrap().run_time, secs(6));
    assert!(world.is_free("job").await);
}

/// Fault 3: nobody renewed the lock, and long work ran beside another.
#[tokio::test(start_paused = true)]
async fn a_body_that_outlasts_its_ttl_has_its_lease_to_the_end() {
    let world = World::new();
    let job =
        |by, length| Job::new(key("job"), world.log.body(by, length)).at_most(secs(5)).unwrap();
    let (a, b) = (world.start("a", [job("a", secs(300))]), world.start("b", [job("b", secs(1))]));
    let running = tokio::spawn(async move { a.handle.run_now("job").await });

    for _ in 0..29 {
        sleep(secs(10)).await;
        let run = b.handle.run_now("job").await.unwrap();
        assert!(matches!(run.outcome, Outcome::Skipped(Skip::Held(_))), "{run:?}");
    }

    assert!(matches!(running.await.unwrap().unwrap().outcome, Outcome::Finished));
    assert_eq!(world.log.count(), 1);
}

/// Fault 3 again: `Lost`, and no overlap with whoever comes next.
#[tokio::test(start_paused = true)]
async fn a_body_is_dropped_before_a_successor_could_begin() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(300)));
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    let way = a.way.clone();
    let running = tokio::spawn(async move { (a.handle.run_now("job").await, a) });
    sleep(secs(1)).await;

    way.choose(|_| Some(Fault::Hang));
    let began = loop {
        sleep(Duration::from_millis(50)).await;
        let attempt = timeout(secs(1), b.handle.run_now("job")).await;
        if attempt.is_err() {
            break world.log.bodies()[1].began;
        }
    };

    let (run, _a) = running.await.unwrap();
    assert!(matches!(run.unwrap().outcome, Outcome::Lost(_)));
    let first = &world.log.bodies()[0];
    assert!(first.ended.unwrap() < began, "{:?}", world.log.bodies());
    assert!(began.since(first.began) <= TTL + secs(2), "as soon as the ttl had passed");
}

/// Faults 1 and 2: an end that comes late freed the next holder's lock.
#[tokio::test(start_paused = true)]
async fn whoever_lost_its_lease_frees_no_one_elses() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(60)));
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    let way = a.way.clone();
    let running = tokio::spawn(async move { (a.handle.run_now("job").await, a) });
    sleep(secs(1)).await;
    way.choose(|_| Some(Fault::DelayRequest(Duration::from_secs(45))));
    sleep(secs(31)).await;

    let of_b = tokio::spawn(async move { b.handle.run_now("job").await });
    sleep(secs(50)).await; // everything of the first has arrived by now
    let holder = world.store.holder(&key("job")).await.unwrap().unwrap();

    assert_eq!(holder.lessee.as_str(), "b");
    assert!(matches!(running.await.unwrap().0.unwrap().outcome, Outcome::Lost(_)));
    assert!(matches!(of_b.await.unwrap().unwrap().outcome, Outcome::Finished));
}

/// Fault 5: a lock that was taken for a job that could not begin was held until its end.
#[tokio::test(start_paused = true)]
async fn where_the_mark_cannot_be_written_nothing_is_run_and_the_lease_is_given_back() {
    let world = World::new();
    let machine = world.start("a", [Job::new(key("job"), world.log.body("a", secs(1)))]);
    machine.way.every(Call::Write, Fault::Fail);

    let run = machine.handle.run_now("job").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Skipped(Skip::Unknown(_))), "{run:?}");
    assert_eq!(world.log.count(), 0);
    assert!(world.is_free("job").await);
}

#[tokio::test(start_paused = true)]
async fn a_mark_whose_answer_was_lost_is_recognised() {
    let world = World::new();
    let each_minute = Schedule::cron("* * * * *", "UTC").unwrap();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(each_minute);
    let machine = world.start("a", [job]);
    sleep(secs(30)).await;
    machine.way.next(Call::Write, Fault::LoseReply);

    sleep(secs(60)).await;

    assert_eq!(machine.told.words(), ["finished"]);
    assert_eq!(world.log.count(), 1);
}

/// Fault 14: what a lock cannot promise, a token can be checked for.
#[tokio::test(start_paused = true)]
async fn each_run_has_a_larger_token() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1)));
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));

    for machine in [&a, &b, &a, &b] {
        machine.handle.run_now("job").await.unwrap();
    }

    let tokens: Vec<_> = world.log.bodies().iter().map(|body| body.token).collect();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_run_keeps_its_lease_for_at_least_as_long_as_was_said() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).at_least(secs(60)).unwrap();
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    a.handle.run_now("job").await.unwrap();

    sleep(secs(58)).await;
    let run = b.handle.run_now("job").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Skipped(Skip::Held(_))), "{run:?}");
    sleep(secs(2)).await;
    let run = b.handle.run_now("job").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Finished), "{run:?}");
}

#[tokio::test(start_paused = true)]
async fn the_history_has_the_last_ten_runs_and_who_made_them() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1)));
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    for machine in [&a, &b, &a, &a, &b, &a, &b, &b, &a, &b, &a, &b] {
        machine.handle.run_now("job").await.unwrap();
    }

    let history = b.handle.history("job").await.unwrap();

    let by: String = history.iter().map(|run| run.by.as_str()).collect();
    assert_eq!(by, "bababbabaa");
    assert!(history.iter().all(|run| run.ending == Ending::Finished));
    assert!(history.is_sorted_by(|later, earlier| later.token > earlier.token));
    let record = world.store.read(&key("job")).await.unwrap().unwrap();
    assert!(!record.attributes.contains_key("job_tick"), "no tick was used up");
}
