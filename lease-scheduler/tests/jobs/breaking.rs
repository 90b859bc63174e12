//! Machines that die at each step of a run: no tick starts twice, unless more attempts are allowed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease_core::conformance::{Call, Fault};
use lease_scheduler::{Ending, Job, Schedule};
use tokio::time::sleep;

use crate::harness::{SchedulerHarness, at, key, secs};

fn each_minute() -> Schedule {
    Schedule::cron("* * * * *", "UTC").unwrap()
}

/// From one of its first 40 requests on, the machine gets no answers. In half of the repetitions,
/// the store still applies this request.
#[tokio::test(start_paused = true)]
async fn death_at_any_request_starts_no_tick_twice() {
    let (mut deaths, mut lost) = (0, 0);
    for last_words in [Fault::Hang, Fault::HangReply] {
        for dies_at in 0..40 {
            let harness = SchedulerHarness::new();
            let job = |by| Job::new(key("job"), harness.log.body(by, secs(5))).on(each_minute());
            let a = harness.start("a", [job("a")]);
            let b = harness.start("b", [job("b")]);
            let requests = AtomicUsize::new(0);
            a.connection.choose(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
                before if before < dies_at => None,
                this if this == dies_at => Some(last_words),
                _ => Some(Fault::Hang),
            });

            harness.until("2026-11-21T00:04:20Z").await;
            a.crash();
            harness.until("2026-11-21T00:08:30Z").await;

            let ticks = harness.log.ticks();
            assert!(ticks.values().all(|runs| *runs == 1), "died at {dies_at}: {ticks:?}");
            assert_eq!(harness.log.overlaps(), 0, "died at {dies_at}: {:?}", harness.log.bodies());
            assert!(
                ticks.contains_key(&at("2026-11-21T00:08:00Z")),
                "the other machine runs its ticks"
            );
            deaths += 1;
            lost += 8 - ticks.len();
            b.stop().await;
        }
    }
    println!(
        "{deaths} deaths: no tick was started twice, {lost} of {} were not started",
        deaths * 8
    );
}

/// Drops the scheduler at a different moment in each repetition.
#[tokio::test(start_paused = true)]
async fn drop_at_any_moment_starts_no_tick_twice() {
    for millis in 0..60 {
        let harness = SchedulerHarness::new();
        let length = Duration::from_millis(30);
        let job = |by| Job::new(key("job"), harness.log.body(by, length)).on(each_minute());
        let a = harness.start("a", [job("a")]);
        let _b = harness.start_ahead("b", jiff::SignedDuration::from_millis(-10), [job("b")]);
        harness.until("2026-11-21T00:01:00Z").await;
        sleep(Duration::from_millis(millis)).await;

        a.task.abort();
        harness.until("2026-11-21T00:03:30Z").await;

        let ticks = harness.log.ticks();
        assert!(ticks.values().all(|runs| *runs == 1), "dropped at {millis}: {ticks:?}");
        assert!(ticks.contains_key(&at("2026-11-21T00:02:00Z")), "released at {millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_tick_is_not_restarted_and_is_in_history() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(40))).on(each_minute());
    let a = harness.start("a", [job("a")]);
    harness.until("2026-11-21T00:01:10Z").await;
    a.crash();
    let b = harness.start("b", [job("b")]);

    harness.until("2026-11-21T00:02:50Z").await;

    let runs = b.handle.history("job").await.unwrap();
    let seen: Vec<_> =
        runs.iter().map(|run| (run.by.as_str(), run.ending, run.ended.is_some())).collect();
    assert_eq!(seen, [("b", Ending::Finished, true), ("a", Ending::Died, false)]);
    assert_eq!(harness.log.ticks().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn interrupted_tick_is_restarted_if_attempts_allow() {
    let harness = SchedulerHarness::new();
    let job =
        |by| Job::new(key("job"), harness.log.body(by, secs(25))).on(each_minute()).attempts(2);
    let a = harness.start("a", [job("a")]);
    harness.until("2026-11-21T00:01:10Z").await;
    a.crash();
    let _b = harness.start("b", [job("b")]);

    harness.until("2026-11-21T00:01:59Z").await;

    let bodies = harness.log.bodies();
    let begun: Vec<_> = bodies.iter().map(|body| (body.by.as_str(), body.attempt)).collect();
    assert_eq!(begun, [("a", 1), ("b", 2)]);
    assert_eq!(bodies[0].scheduled, bodies[1].scheduled);
    assert!(bodies[0].token < bodies[1].token);
}

/// The machine must recognise its own mark, since no other machine may start the marked tick.
#[tokio::test(start_paused = true)]
async fn mark_without_any_answer_is_found_and_body_starts() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(5))).on(each_minute());
    let machine = harness.start("a", [job]);
    harness.until("2026-11-21T00:00:30Z").await;
    for _ in 0..3 {
        machine.connection.next(Call::Write, Fault::LoseReply);
    }

    harness.until("2026-11-21T00:01:30Z").await;

    assert_eq!(
        harness.log.ticks().into_iter().collect::<Vec<_>>(),
        [(at("2026-11-21T00:01:00Z"), 1)]
    );
    assert_eq!(machine.reports.texts(), ["finished"]);
}
