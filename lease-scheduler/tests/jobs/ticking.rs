//! Jobs with a schedule: which ticks are run, late, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use lease_core::conformance::{Call, Fault};
use lease_core::{Attributes, LeaseTable, Locker};
use lease_scheduler::{Ending, Job, JobError, Missed, Schedule, Scheduler, Switch, TableSwitch};
use tokio::time::sleep;

use crate::warnings::Warnings;
use crate::world::{Body, World, at, key, secs};

fn cron(expression: &str) -> Schedule {
    Schedule::cron(expression, "UTC").unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_three_machines_one_runs_each_tick_and_the_others_know() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(20))).on(cron("* * * * *"));
    let machines = ["a", "b", "c"].map(|name| world.start(name, [job(name)]));

    world.until("2026-11-21T01:00:30Z").await;

    assert_eq!(world.log.count(), 60);
    assert!(world.log.bodies().iter().all(|body| body.is_complete));
    assert!(world.log.ticks().values().all(|runs| *runs == 1));
    let told: Vec<_> = machines.iter().map(|machine| machine.told.counts()).collect();
    let of = |kind| told.iter().filter_map(|counts| counts.get(kind)).sum::<usize>();
    assert_eq!((of("finished"), of("skipped"), of("failed")), (60, 120, 0), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_is_told_its_tick_and_how_late_it_began() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(cron("0 3 * * *"));
    let machine = world.start("a", [job]);
    let three = at("2026-11-21T03:00:00Z");
    assert_eq!(machine.handle.next_due("job").unwrap(), Some(three));

    world.until("2026-11-21T03:00:10Z").await;

    let run = machine.handle.last_run("job").await.unwrap().unwrap();
    assert_eq!(run.scheduled, three);
    let late = run.began.duration_since(three).as_millis();
    assert!((4..100).contains(&late), "{late} ms: the asking takes that long");
    assert_eq!(world.log.bodies()[0].scheduled, three);
    assert_eq!(machine.handle.next_due("job").unwrap(), Some(at("2026-11-22T03:00:00Z")));
}

#[tokio::test(start_paused = true)]
async fn once_is_once_for_a_fleet() {
    let world = World::new();
    let moment = at("2026-11-21T05:30:00Z");
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(Schedule::once(moment));
    let _machines = ["a", "b"].map(|name| world.start(name, [job(name)]));

    world.until("2026-11-22T00:00:00Z").await;

    assert_eq!(world.log.ticks().into_iter().collect::<Vec<_>>(), [(moment, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_tick_at_which_nobody_was_there_is_skipped_or_caught_up_once() {
    let world = World::new();
    let skip = |by| Job::new(key("skips"), world.log.body(by, secs(1))).on(cron("0 * * * *"));
    let caught = world.log.clone();
    let catch_up = move |by| {
        let job = Job::new(key("catches up"), caught.body(by, secs(1))).on(cron("10 * * * *"));
        job.missed(Missed::CatchUpOnce).unwrap()
    };
    let machine = world.start("a", [skip("a"), catch_up("a")]);
    sleep(secs(1)).await;
    machine.stop().await;
    world.until("2026-11-21T03:30:00Z").await;
    assert_eq!(world.log.count(), 0);

    let _machine = world.start("b", [skip("b"), catch_up("b")]);
    world.until("2026-11-21T04:30:00Z").await;

    let begun: Vec<_> =
        world.log.ticks().into_iter().map(|(tick, runs)| (tick.to_string(), runs)).collect();
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
async fn a_restart_at_the_very_moment_of_a_tick_does_not_miss_it() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(cron("0 * * * *"));
    let machine = world.start("a", [job("a")]);
    world.until("2026-11-21T00:59:50Z").await;
    machine.stop().await;

    world.until("2026-11-21T01:00:30Z").await;
    let _machine = world.start("b", [job("b")]);
    sleep(secs(5)).await;

    assert_eq!(
        world.log.ticks().into_iter().collect::<Vec<_>>(),
        [(at("2026-11-21T01:00:00Z"), 1)]
    );
}

/// Nobody knows what was to be run before the job was there.
#[tokio::test(start_paused = true)]
async fn a_new_job_does_not_catch_up_what_was_before_it() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(cron("0 0 1 1 *"));
    let _machine = world.start("a", [job.missed(Missed::CatchUpOnce).unwrap()]);

    world.until("2026-11-21T12:00:00Z").await;

    assert_eq!(world.log.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_comes_due_while_the_last_body_goes_on_begins_late_or_is_skipped() {
    let world = World::new();
    let two_minutes = Schedule::every(secs(120)).unwrap();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(150))).on(two_minutes.clone());
    let (_a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));

    world.until("2026-11-21T00:20:00Z").await;

    // Begun at 2:00, 4:30, 7:00 (the tick of 6:00 is a minute late then), 8:00 or soon after, …
    let bodies = world.log.bodies();
    assert_eq!(world.log.overlaps(), 0);
    assert!(world.log.ticks().values().all(|runs| *runs == 1));
    let is_in_time = |body: &Body| {
        let tick = body.scheduled.duration_since(bodies[0].scheduled);
        body.began.since(bodies[0].began) <= Duration::try_from(tick).unwrap() + secs(60)
    };
    assert!(bodies.iter().all(is_in_time), "{bodies:?}");
    assert!(bodies.len() >= 6, "{bodies:?}");
    assert!(b.told.words().iter().any(|words| words.starts_with("skipped: held by")), "{b:?}");
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_set_forward_and_back_run_no_tick_again() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(5))).on(cron("* * * * *"));
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    world.until("2026-11-21T00:10:30Z").await;
    assert_eq!(world.log.count(), 10);

    a.wall.step(SignedDuration::from_hours(3));
    world.until("2026-11-21T00:20:30Z").await;
    a.wall.step(SignedDuration::from_hours(-3));
    let ahead = world.log.count();
    world.until("2026-11-21T03:00:00Z").await;
    assert!(world.log.count() <= ahead + 1, "it waits until it is as late as it once seemed");
    world.until("2026-11-21T04:00:30Z").await;

    assert!(world.log.ticks().values().all(|runs| *runs == 1));
    assert!(world.log.ticks().contains_key(&at("2026-11-21T04:00:00Z")));
    drop(b);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_is_noticed_within_a_minute() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(cron("0 * * * *"));
    let machine = world.start("a", [job.missed(Missed::SkipAfter(secs(120))).unwrap()]);
    world.until("2026-11-21T00:10:00Z").await;

    machine.wall.step(SignedDuration::from_mins(50));
    sleep(secs(62)).await;

    assert_eq!(world.log.ticks().into_keys().collect::<Vec<_>>(), [at("2026-11-21T01:00:00Z")]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_switched_off_skips_its_ticks_and_may_catch_up() {
    let world = World::new();
    let switch =
        || TableSwitch::new(key("switch"), &Locker::new(world.store.clone()), world.store.clone());
    let job = Job::new(key("job"), world.log.body("a", secs(1)))
        .on(cron("0 * * * *"))
        .missed(Missed::CatchUpOnce)
        .unwrap()
        .with_switch(switch());
    let machine = world.start("a", [job]);
    world.until("2026-11-21T02:30:00Z").await;
    assert_eq!(machine.told.words(), ["disabled: it is switched off"; 2]);

    switch().turn_on().await.unwrap();
    sleep(secs(61)).await;

    assert_eq!(
        world.log.ticks().into_iter().collect::<Vec<_>>(),
        [(at("2026-11-21T02:00:00Z"), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_begun_once_also_where_its_body_failed_unless_more_attempts_are_allowed() {
    let world = World::new();
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
    let machine = world.start("a", [one, three]);

    world.until("2026-11-21T02:00:00Z").await;

    assert_eq!(of_one.load(Ordering::SeqCst), 1);
    assert_eq!(of_three.load(Ordering::SeqCst), 3, "until it has finished");
    let history = machine.handle.history("thrice").await.unwrap();
    let endings: Vec<_> = history.iter().map(|run| run.ending).collect();
    assert_eq!(endings, [Ending::Finished, Ending::Failed, Ending::Failed]);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_down_at_a_tick_is_asked_again_while_the_tick_is_due() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(cron("0 * * * *"));
    let machine = world.start("a", [job]);
    world.until("2026-11-21T00:59:00Z").await;
    for call in [Call::Obtain, Call::Read, Call::Write] {
        machine.way.every(call, Fault::Fail);
    }
    world.until("2026-11-21T01:00:20Z").await;
    assert_eq!(world.log.count(), 0);

    machine.way.heal();
    sleep(secs(5)).await;

    assert_eq!(world.log.count(), 1);
    assert_eq!(machine.told.words(), ["skipped: lock store did not answer", "finished"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_runs_nothing() {
    let world = World::new();
    let broken = Attributes::from([("job_tick".to_owned(), "yesterday".into())]);
    world.store.create(&key("job"), &broken).await.unwrap();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(cron("* * * * *"));
    let machine = world.start("a", [job]);

    world.until("2026-11-21T00:05:30Z").await;

    assert_eq!(world.log.count(), 0);
    assert_eq!(machine.told.counts()["skipped"], 5);
    assert!(machine.handle.history("job").await.is_err());
    assert!(world.is_free("job").await);
}

#[tokio::test(start_paused = true)]
async fn two_jobs_of_one_name_and_lengths_out_of_range_are_refused() {
    let world = World::new();
    let job = || Job::new(key("job"), |_job| async { Ok(()) });
    let locker = Locker::new(world.store.clone());
    let builder = Scheduler::builder(locker, world.store);

    let refused = builder.with_job(job()).with_job(job()).build().unwrap_err();
    assert_eq!(refused.to_string(), "two jobs are called job");
    assert!(job().at_most(secs(0)).is_err());
    assert!(job().at_least(secs(8 * 86_400)).is_err());
    assert!(job().missed(Missed::SkipAfter(secs(0))).is_err());
}

/// It was the first to see the job, and wrote down when that was by its clock.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_marks_no_tick_that_nobody_has_run() {
    let world = World::new();
    let moment = at("2026-11-21T05:30:00Z");
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(Schedule::once(moment));
    world.until("2026-11-21T05:00:00Z").await;
    let _ahead = world.start_ahead("ahead", SignedDuration::from_hours(1), [job("ahead")]);
    sleep(secs(10)).await;
    let _right = world.start("right", [job("right")]);

    world.until("2026-11-21T08:00:00Z").await;

    assert_eq!(world.log.ticks().into_iter().collect::<Vec<_>>(), [(moment, 1)]);
    assert_eq!(world.log.bodies()[0].by, "right");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_over_is_warned_of_once_where_it_was_never_run() {
    let world = World::new();
    let in_2020 = cron("0 0 0 1 1 * 2020");
    let job = || Job::new(key("job"), world.log.body("a", secs(1))).on(in_2020.clone());
    let (warnings, _listening) = Warnings::listen();

    let machine = world.start("a", [job()]);
    world.until("2026-11-21T12:00:00Z").await;

    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for told in ["job=job", "0 0 0 1 1 * 2020 in UTC", "has no tick any more"] {
        assert!(lines[0].contains(told), "{told}: {lines:?}");
    }
    assert_eq!(machine.handle.next_due("job").unwrap(), None);
    assert_eq!(machine.handle.run_now("job").await.unwrap().outcome.to_string(), "finished");
}

/// A program that is started again after its last tick: as it should be.
#[tokio::test(start_paused = true)]
async fn a_schedule_that_was_run_or_has_something_to_catch_up_is_over_without_a_warning() {
    let world = World::new();
    let (warnings, _listening) = Warnings::listen();
    let moment = at("2026-11-21T01:00:00Z");
    let job = |missed| {
        let job = Job::new(key("job"), world.log.body("a", secs(1))).on(Schedule::once(moment));
        job.missed(missed).unwrap()
    };
    let first = world.start("a", [job(Missed::CatchUpOnce)]);
    world.until("2026-11-21T00:30:00Z").await;
    first.stop().await;

    world.until("2026-11-21T02:00:00Z").await;
    let late = world.start("a", [job(Missed::CatchUpOnce)]);
    sleep(secs(60)).await;
    late.stop().await;
    let _again = world.start("a", [job(Missed::default())]);
    sleep(secs(60)).await;

    assert_eq!(world.log.ticks().into_iter().collect::<Vec<_>>(), [(moment, 1)]);
    assert_eq!(warnings.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_switched_on_while_a_tick_is_due_runs_it_and_not_later() {
    let world = World::new();
    let switch = || {
        let locker = Locker::new(world.store.clone());
        TableSwitch::new(key("switch"), &locker, world.store.clone())
    };
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(cron("0 * * * *"));
    let job = job.missed(Missed::SkipAfter(secs(600))).unwrap().with_switch(switch());
    let _machine = world.start("a", [job]);

    world.until("2026-11-21T01:03:00Z").await;
    assert_eq!(world.log.count(), 0);
    switch().turn_on().await.unwrap();
    world.until("2026-11-21T01:05:00Z").await;
    assert_eq!(world.log.ticks().into_keys().collect::<Vec<_>>(), [at("2026-11-21T01:00:00Z")]);

    switch().turn_off().await.unwrap();
    world.until("2026-11-21T02:11:00Z").await;
    switch().turn_on().await.unwrap();
    world.until("2026-11-21T02:59:00Z").await;
    assert_eq!(world.log.count(), 1, "it is skipped after ten minutes");
}
