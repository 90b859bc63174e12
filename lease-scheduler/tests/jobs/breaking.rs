//! Machines that die at every step of a run: no tick is begun twice, unless that was chosen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease_core::conformance::{Call, Fault};
use lease_scheduler::{Ending, Job, Schedule};
use tokio::time::sleep;

use crate::world::{World, at, key, secs};

fn each_minute() -> Schedule {
    Schedule::cron("* * * * *", "UTC").unwrap()
}

/// At each request in turn, it hears no answer any more: and the request arrives, or it does not.
#[tokio::test(start_paused = true)]
async fn a_machine_that_dies_at_any_request_leaves_no_tick_that_is_begun_twice() {
    let (mut deaths, mut lost) = (0, 0);
    for last_words in [Fault::Hang, Fault::HangReply] {
        for dies_at in 0..40 {
            let world = World::new();
            let job = |by| Job::new(key("job"), world.log.body(by, secs(5))).on(each_minute());
            let a = world.start("a", [job("a")]);
            let b = world.start("b", [job("b")]);
            let requests = AtomicUsize::new(0);
            a.way.choose(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
                before if before < dies_at => None,
                this if this == dies_at => Some(last_words),
                _ => Some(Fault::Hang),
            });

            world.until("2026-11-21T00:04:20Z").await;
            a.crash();
            world.until("2026-11-21T00:08:30Z").await;

            let ticks = world.log.ticks();
            assert!(ticks.values().all(|runs| *runs == 1), "died at {dies_at}: {ticks:?}");
            assert_eq!(world.log.overlaps(), 0, "died at {dies_at}: {:?}", world.log.bodies());
            assert!(ticks.contains_key(&at("2026-11-21T00:08:00Z")), "the other goes on");
            deaths += 1;
            lost += 8 - ticks.len();
            b.stop().await;
        }
    }
    println!("{deaths} deaths: no tick was begun twice, {lost} of {} were not", deaths * 8);
}

/// The same at each moment of a run, for who is dropped there rather than cut off.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_dropped_at_any_moment_leaves_no_tick_that_is_begun_twice() {
    for millis in 0..60 {
        let world = World::new();
        let length = Duration::from_millis(30);
        let job = |by| Job::new(key("job"), world.log.body(by, length)).on(each_minute());
        let a = world.start("a", [job("a")]);
        let _b = world.start_ahead("b", jiff::SignedDuration::from_millis(-10), [job("b")]);
        world.until("2026-11-21T00:01:00Z").await;
        sleep(Duration::from_millis(millis)).await;

        a.task.abort();
        world.until("2026-11-21T00:03:30Z").await;

        let ticks = world.log.ticks();
        assert!(ticks.values().all(|runs| *runs == 1), "dropped at {millis}: {ticks:?}");
        assert!(ticks.contains_key(&at("2026-11-21T00:02:00Z")), "given back at {millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_body_broke_off_is_not_begun_again_and_the_history_says_so() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(40))).on(each_minute());
    let a = world.start("a", [job("a")]);
    world.until("2026-11-21T00:01:10Z").await;
    a.crash();
    let b = world.start("b", [job("b")]);

    world.until("2026-11-21T00:02:50Z").await;

    let runs = b.handle.history("job").await.unwrap();
    let seen: Vec<_> =
        runs.iter().map(|run| (run.by.as_str(), run.ending, run.ended.is_some())).collect();
    assert_eq!(seen, [("b", Ending::Finished, true), ("a", Ending::Died, false)]);
    assert_eq!(world.log.ticks().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_body_broke_off_is_begun_again_where_that_was_chosen() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(25))).on(each_minute()).attempts(2);
    let a = world.start("a", [job("a")]);
    world.until("2026-11-21T00:01:10Z").await;
    a.crash();
    let _b = world.start("b", [job("b")]);

    world.until("2026-11-21T00:01:59Z").await;

    let bodies = world.log.bodies();
    let begun: Vec<_> = bodies.iter().map(|body| (body.by.as_str(), body.attempt)).collect();
    assert_eq!(begun, [("a", 1), ("b", 2)]);
    assert_eq!(bodies[0].scheduled, bodies[1].scheduled);
    assert!(bodies[0].token < bodies[1].token);
}

/// Nobody else could run the tick any more.
#[tokio::test(start_paused = true)]
async fn a_mark_whose_answers_were_all_lost_is_found_and_its_body_begins() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(5))).on(each_minute());
    let machine = world.start("a", [job]);
    world.until("2026-11-21T00:00:30Z").await;
    for _ in 0..3 {
        machine.way.next(Call::Write, Fault::LoseReply);
    }

    world.until("2026-11-21T00:01:30Z").await;

    assert_eq!(
        world.log.ticks().into_iter().collect::<Vec<_>>(),
        [(at("2026-11-21T00:01:00Z"), 1)]
    );
    assert_eq!(machine.told.words(), ["finished"]);
}
