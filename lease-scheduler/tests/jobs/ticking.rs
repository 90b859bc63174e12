//! Jobs with a schedule: which ticks run, start late, or do not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use lease_core::conformance::{Call, Fault};
use lease_core::store::LeaseTable;
use lease_core::{Attributes, Locker};
use lease_scheduler::{Ending, Job, JobError, Misfire, Schedule, Scheduler, Switch, TableSwitch};
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;

use crate::harness::{Body, SchedulerHarness, at, key, secs};

fn cron(expression: &str) -> Schedule {
    Schedule::cron(expression, "UTC").unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_of_three_machines_runs_each_tick() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(20))).on(cron("* * * * *"));
    let machines = ["a", "b", "c"].map(|name| harness.start(name, [job(name)]));

    harness.until("2026-11-21T01:00:30Z").await;

    assert_eq!(harness.log.count(), 60);
    assert!(harness.log.bodies().iter().all(|body| body.is_complete));
    assert!(harness.log.ticks().values().all(|runs| *runs == 1));
    let reports: Vec<_> = machines.iter().map(|machine| machine.reports.counts()).collect();
    let of = |kind| reports.iter().filter_map(|counts| counts.get(kind)).sum::<usize>();
    assert_eq!((of("finished"), of("skipped"), of("failed")), (60, 120, 0), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn context_has_tick_and_run_has_latency() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(cron("0 3 * * *"));
    let machine = harness.start("a", [job]);
    let three = at("2026-11-21T03:00:00Z");
    assert_eq!(machine.handle.next_due("job").unwrap(), Some(three));

    harness.until("2026-11-21T03:00:10Z").await;

    let run = machine.handle.last_run("job").await.unwrap().unwrap();
    assert_eq!(run.scheduled, three);
    let late = run.began.duration_since(three).as_millis();
    assert!((4..100).contains(&late), "{late} ms: the requests take a few ms");
    assert_eq!(harness.log.bodies()[0].scheduled, three);
    assert_eq!(machine.handle.next_due("job").unwrap(), Some(at("2026-11-22T03:00:00Z")));
}

#[tokio::test(start_paused = true)]
async fn once_runs_once_in_a_fleet() {
    let harness = SchedulerHarness::new();
    let moment = at("2026-11-21T05:30:00Z");
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(Schedule::once(moment));
    let _machines = ["a", "b"].map(|name| harness.start(name, [job(name)]));

    harness.until("2026-11-22T00:00:00Z").await;

    assert_eq!(harness.log.ticks().into_iter().collect::<Vec<_>>(), [(moment, 1)]);
}

#[tokio::test(start_paused = true)]
async fn tick_without_scheduler_is_missed_or_caught_up() {
    let harness = SchedulerHarness::new();
    let skip = |by| Job::new(key("skips"), harness.log.body(by, secs(1))).on(cron("0 * * * *"));
    let caught = harness.log.clone();
    let catch_up = move |by| {
        let job = Job::new(key("catches up"), caught.body(by, secs(1))).on(cron("10 * * * *"));
        job.misfire(Misfire::CatchUpOnce).unwrap()
    };
    let machine = harness.start("a", [skip("a"), catch_up("a")]);
    sleep(secs(1)).await;
    machine.stop().await;
    harness.until("2026-11-21T03:30:00Z").await;
    assert_eq!(harness.log.count(), 0);

    let _machine = harness.start("b", [skip("b"), catch_up("b")]);
    harness.until("2026-11-21T04:30:00Z").await;

    let begun: Vec<_> =
        harness.log.ticks().into_iter().map(|(tick, runs)| (tick.to_string(), runs)).collect();
    assert_eq!(
        begun,
        [
            ("2026-11-21T03:10:00Z".to_owned(), 1), // the last of three that were missed
            ("2026-11-21T04:00:00Z".to_owned(), 1),
            ("2026-11-21T04:10:00Z".to_owned(), 1),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn tick_during_restart_runs_late() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(cron("0 * * * *"));
    let machine = harness.start("a", [job("a")]);
    harness.until("2026-11-21T00:59:50Z").await;
    machine.stop().await;

    harness.until("2026-11-21T01:00:30Z").await;
    let _machine = harness.start("b", [job("b")]);
    sleep(secs(5)).await;

    assert_eq!(
        harness.log.ticks().into_iter().collect::<Vec<_>>(),
        [(at("2026-11-21T01:00:00Z"), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn new_job_does_not_catch_up_earlier_ticks() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(cron("0 0 1 1 *"));
    let _machine = harness.start("a", [job.misfire(Misfire::CatchUpOnce).unwrap()]);

    harness.until("2026-11-21T12:00:00Z").await;

    assert_eq!(harness.log.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn tick_during_long_run_starts_late_or_is_missed() {
    let harness = SchedulerHarness::new();
    let two_minutes = Schedule::every(secs(120)).unwrap();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(150))).on(two_minutes.clone());
    let (_a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));

    harness.until("2026-11-21T00:20:00Z").await;

    // Bodies start at 2:00 and 4:30 (in minutes). The third body starts at 7:00, a minute late, or
    // soon after 8:00.
    let bodies = harness.log.bodies();
    assert_eq!(harness.log.overlaps(), 0);
    assert!(harness.log.ticks().values().all(|runs| *runs == 1));
    let is_in_time = |body: &Body| {
        let tick = body.scheduled.duration_since(bodies[0].scheduled);
        body.began.since(bodies[0].began) <= Duration::try_from(tick).unwrap() + secs(60)
    };
    assert!(bodies.iter().all(is_in_time), "{bodies:?}");
    assert!(bodies.len() >= 6, "{bodies:?}");
    assert!(b.reports.texts().iter().any(|texts| texts.starts_with("skipped: held by")), "{b:?}");
}

#[tokio::test(start_paused = true)]
async fn clock_set_forward_and_back_runs_no_tick_again() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(5))).on(cron("* * * * *"));
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    harness.until("2026-11-21T00:10:30Z").await;
    assert_eq!(harness.log.count(), 10);

    a.wall.step(SignedDuration::from_hours(3));
    harness.until("2026-11-21T00:20:30Z").await;
    a.wall.step(SignedDuration::from_hours(-3));
    let ahead = harness.log.count();
    harness.until("2026-11-21T03:00:00Z").await;
    assert!(harness.log.count() <= ahead + 1, "no tick runs until the mark");
    harness.until("2026-11-21T04:00:30Z").await;

    assert!(harness.log.ticks().values().all(|runs| *runs == 1));
    assert!(harness.log.ticks().contains_key(&at("2026-11-21T04:00:00Z")));
    drop(b);
}

#[tokio::test(start_paused = true)]
async fn clock_set_forward_is_noticed_within_a_minute() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(cron("0 * * * *"));
    let machine = harness.start("a", [job.misfire(Misfire::StartWithin(secs(120))).unwrap()]);
    harness.until("2026-11-21T00:10:00Z").await;

    machine.wall.step(SignedDuration::from_mins(50));
    sleep(secs(62)).await;

    assert_eq!(harness.log.ticks().into_keys().collect::<Vec<_>>(), [at("2026-11-21T01:00:00Z")]);
}

#[tokio::test(start_paused = true)]
async fn switched_off_job_skips_ticks_and_may_catch_up() {
    let harness = SchedulerHarness::new();
    let switch = || {
        TableSwitch::new(key("switch"), &Locker::new(harness.store.clone()), harness.store.clone())
    };
    let job = Job::new(key("job"), harness.log.body("a", secs(1)))
        .on(cron("0 * * * *"))
        .misfire(Misfire::CatchUpOnce)
        .unwrap()
        .with_switch(switch());
    let machine = harness.start("a", [job]);
    harness.until("2026-11-21T02:30:00Z").await;
    assert_eq!(machine.reports.texts(), ["disabled: it is switched off"; 2]);

    switch().turn_on().await.unwrap();
    sleep(secs(61)).await;

    assert_eq!(
        harness.log.ticks().into_iter().collect::<Vec<_>>(),
        [(at("2026-11-21T02:00:00Z"), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn failed_tick_is_restarted_only_if_attempts_allow() {
    let harness = SchedulerHarness::new();
    let job = |name: &str, attempts| {
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let job = Job::new(key(name), move |job| {
            assert_eq!(job.attempt(), tries.fetch_add(1, Ordering::SeqCst) + 1);
            async move { if job.attempt() < 3 { Err(JobError::from("not yet")) } else { Ok(()) } }
        });
        (job.on(cron("0 1 * * *")).attempts(attempts), counted)
    };
    let ((one, of_one), (three, of_three)) = (job("once", 1), job("thrice", 5));
    let machine = harness.start("a", [one, three]);

    harness.until("2026-11-21T02:00:00Z").await;

    assert_eq!(of_one.load(Ordering::SeqCst), 1);
    assert_eq!(of_three.load(Ordering::SeqCst), 3, "until it has finished");
    let history = machine.handle.history("thrice").await.unwrap();
    let endings: Vec<_> = history.iter().map(|run| run.ending).collect();
    assert_eq!(endings, [Ending::Finished, Ending::Failed, Ending::Failed]);
}

#[tokio::test(start_paused = true)]
async fn table_outage_at_a_tick_is_retried_while_due() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(cron("0 * * * *"));
    let machine = harness.start("a", [job]);
    harness.until("2026-11-21T00:59:00Z").await;
    for call in [Call::Obtain, Call::Read, Call::Write] {
        machine.connection.every(call, Fault::Fail);
    }
    harness.until("2026-11-21T01:00:20Z").await;
    assert_eq!(harness.log.count(), 0);

    machine.connection.heal();
    sleep(secs(5)).await;

    assert_eq!(harness.log.count(), 1);
    assert_eq!(machine.reports.texts(), ["skipped: lock store did not answer", "finished"]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_record_runs_nothing() {
    let harness = SchedulerHarness::new();
    let broken = Attributes::from([("job_tick".to_owned(), "yesterday".into())]);
    harness.store.create(&key("job"), &broken).await.unwrap();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(cron("* * * * *"));
    let machine = harness.start("a", [job]);

    harness.until("2026-11-21T00:05:30Z").await;

    assert_eq!(harness.log.count(), 0);
    assert_eq!(machine.reports.counts()["skipped"], 5);
    assert!(machine.handle.history("job").await.is_err());
    assert!(harness.is_free("job").await);
}

#[tokio::test(start_paused = true)]
async fn duplicate_names_and_lengths_out_of_range_are_rejected() {
    let harness = SchedulerHarness::new();
    let job = || Job::new(key("job"), |_job| async { Ok(()) });
    let locker = Locker::new(harness.store.clone());
    let builder = Scheduler::builder(locker, harness.store);

    let refused = builder.with_job(job()).with_job(job()).build().unwrap_err();
    assert_eq!(refused.to_string(), "two jobs have the name job");
    assert!(job().lease_ttl(secs(0)).is_err());
    assert!(job().min_hold(secs(8 * 86_400)).is_err());
    assert!(job().misfire(Misfire::StartWithin(secs(0))).is_err());
}

/// The machine whose clock is ahead sees the job first, and writes its start by its own clock.
#[tokio::test(start_paused = true)]
async fn clock_ahead_marks_no_tick_that_did_not_run() {
    let harness = SchedulerHarness::new();
    let moment = at("2026-11-21T05:30:00Z");
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(Schedule::once(moment));
    harness.until("2026-11-21T05:00:00Z").await;
    let _ahead = harness.start_ahead("ahead", SignedDuration::from_hours(1), [job("ahead")]);
    sleep(secs(10)).await;
    let _right = harness.start("right", [job("right")]);

    harness.until("2026-11-21T08:00:00Z").await;

    assert_eq!(harness.log.ticks().into_iter().collect::<Vec<_>>(), [(moment, 1)]);
    assert_eq!(harness.log.bodies()[0].by, "right");
}

#[tokio::test(start_paused = true)]
async fn past_schedule_that_never_ran_is_logged_once() {
    let harness = SchedulerHarness::new();
    let in_2020 = cron("0 0 0 1 1 * 2020");
    let job = || Job::new(key("job"), harness.log.body("a", secs(1))).on(in_2020.clone());
    let (warnings, _listening) = Warnings::listen();

    let machine = harness.start("a", [job()]);
    harness.until("2026-11-21T12:00:00Z").await;

    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for field in ["job=job", "0 0 0 1 1 * 2020 in UTC", "has no further tick"] {
        assert!(lines[0].contains(field), "{field}: {lines:?}");
    }
    assert_eq!(machine.handle.next_due("job").unwrap(), None);
    assert_eq!(machine.handle.run_now("job").await.unwrap().outcome.to_string(), "finished");
}

/// A program may restart after its last tick.
#[tokio::test(start_paused = true)]
async fn past_schedule_that_ran_is_not_logged() {
    let harness = SchedulerHarness::new();
    let (warnings, _listening) = Warnings::listen();
    let moment = at("2026-11-21T01:00:00Z");
    let job = |misfire| {
        let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(Schedule::once(moment));
        job.misfire(misfire).unwrap()
    };
    let first = harness.start("a", [job(Misfire::CatchUpOnce)]);
    harness.until("2026-11-21T00:30:00Z").await;
    first.stop().await;

    harness.until("2026-11-21T02:00:00Z").await;
    let late = harness.start("a", [job(Misfire::CatchUpOnce)]);
    sleep(secs(60)).await;
    late.stop().await;
    let _again = harness.start("a", [job(Misfire::default())]);
    sleep(secs(60)).await;

    assert_eq!(harness.log.ticks().into_iter().collect::<Vec<_>>(), [(moment, 1)]);
    assert_eq!(warnings.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn tick_runs_after_switch_on_only_while_due() {
    let harness = SchedulerHarness::new();
    let switch = || {
        let locker = Locker::new(harness.store.clone());
        TableSwitch::new(key("switch"), &locker, harness.store.clone())
    };
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(cron("0 * * * *"));
    let job = job.misfire(Misfire::StartWithin(secs(600))).unwrap().with_switch(switch());
    let _machine = harness.start("a", [job]);

    harness.until("2026-11-21T01:03:00Z").await;
    assert_eq!(harness.log.count(), 0);
    switch().turn_on().await.unwrap();
    harness.until("2026-11-21T01:05:00Z").await;
    assert_eq!(harness.log.ticks().into_keys().collect::<Vec<_>>(), [at("2026-11-21T01:00:00Z")]);

    switch().turn_off().await.unwrap();
    harness.until("2026-11-21T02:11:00Z").await;
    switch().turn_on().await.unwrap();
    harness.until("2026-11-21T02:59:00Z").await;
    assert_eq!(harness.log.count(), 1, "the tick is missed after ten minutes");
}
