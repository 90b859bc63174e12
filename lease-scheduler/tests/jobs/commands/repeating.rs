//! Attempts at a trigger, and machines that die while they serve one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::SignedDuration;
use lease_core::conformance::{Fault, Faulty};
use lease_scheduler::{Ending, Job, JobError, RunQuery, Trigger, TriggerAnswer, TriggerState};
use tokio::time::sleep;

use crate::commands::{hourly, job, operator, trigger, until_listed};
use crate::forgetful::{Forgetful, MARKS_OF_TRIGGERS};
use crate::harness::{Machine, SchedulerHarness, at, key, secs};

fn failing(harness: &SchedulerHarness, by: &'static str) -> Job {
    let log = harness.log.clone();
    Job::new(key("job"), move |job| {
        let log = log.clone();
        async move {
            let _noted = log.begin(by, &job);
            sleep(secs(1)).await;
            let day = job.arguments().get("day").cloned();
            job.note(format!("{day:?}"));
            Err(JobError::from("no such table"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn failed_trigger_is_tried_again_with_its_arguments_up_to_the_limit() {
    let harness = SchedulerHarness::new();
    let job = |by| failing(&harness, by).attempts(4).backoff(secs(10), secs(25)).unwrap();
    let _machines = ["a", "b"].map(|name| harness.start(name, [job(name)]));
    let control = operator(&harness);
    until_listed(&control).await;

    let day = Trigger::new().with_argument("day", "monday");
    control.trigger("job", &day).await.unwrap();
    sleep(secs(3600)).await;

    let bodies = harness.log.bodies();
    assert_eq!(bodies.iter().map(|body| body.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    for (pair, expected) in bodies.windows(2).zip([10, 20, 25]) {
        let pause = pair[1].began.since(pair[0].ended.unwrap()).as_secs();
        assert!((expected..expected + 12).contains(&pause), "{pause} s after {expected} s");
    }
    let runs = control.history("job", &RunQuery::new()).await.unwrap();
    assert!(runs.iter().all(|run| run.ending == Ending::Failed && run.note.contains("monday")));
}

#[tokio::test(start_paused = true)]
async fn hung_trigger_times_out_and_is_tried_again() {
    let harness = SchedulerHarness::new();
    let hung = job(&harness, "a", secs(3600)).timeout(secs(60)).unwrap().attempts(2);
    let _machine = harness.start("a", [hung]);
    let control = operator(&harness);
    until_listed(&control).await;

    let _number = trigger(&control).await;
    sleep(secs(600)).await;

    let runs = control.history("job", &RunQuery::new()).await.unwrap();
    let seen: Vec<_> = runs.iter().map(|run| (run.attempt, run.ending)).collect();
    assert_eq!(seen, [(2, Ending::TimedOut), (1, Ending::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn tick_starts_on_time_between_two_attempts_of_a_trigger() {
    let harness = SchedulerHarness::new();
    let failing = failing(&harness, "a").attempts(3).backoff(secs(1800), secs(1800)).unwrap();
    let machine = harness.start("a", [failing.on(hourly())]);
    let control = operator(&harness);
    harness.until("2026-11-21T00:59:00Z").await;
    let _number = trigger(&control).await;

    harness.until("2026-11-21T01:00:50Z").await;

    let tick = at("2026-11-21T01:00:00Z");
    let bodies = harness.log.bodies();
    assert!(bodies[0].trigger.is_some(), "{bodies:?}");
    assert!(bodies.iter().any(|body| body.scheduled == tick), "{bodies:?}");
    harness.until("2026-11-21T01:05:00Z").await;
    assert_eq!(machine.reports.missed(), []);
}

/// A later version of the program allows more attempts.
#[tokio::test(start_paused = true)]
async fn trigger_out_of_attempts_stays_so_if_more_are_allowed_later() {
    for dies in [false, true] {
        let harness = SchedulerHarness::new();
        let old = harness.start("old", [failing(&harness, "old")]);
        let control = operator(&harness);
        until_listed(&control).await;
        let number = trigger(&control).await;
        control.wait_for_answer("job", number).await.unwrap();
        if dies {
            old.crash();
        } else {
            sleep(secs(60)).await;
            old.stop().await;
        }

        let new = harness.start("new", [failing(&harness, "new").attempts(3)]);
        sleep(secs(600)).await;

        assert_eq!(harness.log.count(), 1, "dies: {dies}");
        assert_eq!(new.reports.counts().contains_key("died"), dies);
    }
}

/// The trigger fails after the tick is due, and while the tick may still start.
#[tokio::test(start_paused = true)]
async fn due_tick_starts_before_the_next_attempt_of_a_trigger() {
    let harness = SchedulerHarness::new();
    let job = |by| failing(&harness, by).attempts(3).backoff(secs(90), secs(90)).unwrap();
    let machines = ["a", "b"].map(|name| harness.start(name, [job(name).on(hourly())]));
    let control = operator(&harness);
    harness.until("2026-11-21T00:59:59.5Z").await;
    let _number = trigger(&control).await;

    harness.until("2026-11-21T01:10:00Z").await;

    let bodies = harness.log.bodies();
    let is_of_trigger: Vec<_> = bodies.iter().map(|body| body.trigger.is_some()).collect();
    assert_eq!(is_of_trigger[..2], [true, false], "{bodies:?}");
    let attempts = bodies.iter().filter(|body| body.trigger.is_some());
    let began: Vec<_> = attempts.map(|body| body.began).collect();
    assert_eq!(began.len(), 3, "{bodies:?}");
    assert!(began.windows(2).all(|pair| pair[1].since(pair[0]) >= secs(90)), "{bodies:?}");
    let missed = machines.each_ref().map(|machine| machine.reports.missed());
    assert_eq!(missed, [[], []]);
}

/// A failed trigger that waits for its next attempt counts as a run.
#[tokio::test(start_paused = true)]
async fn trigger_between_two_attempts_is_refused() {
    let harness = SchedulerHarness::new();
    let job = failing(&harness, "a").attempts(2).backoff(secs(60), secs(60)).unwrap();
    let _machine = harness.start("a", [job]);
    let control = operator(&harness);
    until_listed(&control).await;
    let _first = trigger(&control).await;
    sleep(secs(10)).await;

    let second = trigger(&control).await;

    let answer = control.wait_for_answer("job", second).await.unwrap();
    assert_eq!(answer, TriggerState::Answered(TriggerAnswer::JobRuns));
}

#[tokio::test(start_paused = true)]
async fn trigger_of_dead_machine_is_reported_or_tried_again() {
    for attempts in [1, 2] {
        let harness = SchedulerHarness::new();
        let job = |by| job(&harness, by, secs(300)).attempts(attempts);
        let mut machines: Vec<_> = ["a", "b"].map(|name| harness.start(name, [job(name)])).into();
        let control = operator(&harness);
        until_listed(&control).await;
        let number = trigger(&control).await;
        control.wait_for_answer("job", number).await.unwrap();
        sleep(secs(20)).await;
        let is_a = harness.log.bodies()[0].by == "a";
        machines.remove(usize::from(!is_a)).crash();

        sleep(secs(900)).await;

        let runs = control.history("job", &RunQuery::new()).await.unwrap();
        let endings: Vec<_> = runs.iter().map(|run| (run.attempt, run.ending)).collect();
        let expected = [(2, Ending::Finished), (1, Ending::Died)];
        assert_eq!(endings, expected[2 - usize::try_from(attempts).unwrap()..]);
        assert_eq!(machines[0].reports.counts()["died"], 1);
        assert!(runs.iter().all(|run| run.trigger == Some(number)));
    }
}

/// A trigger is sent when the machine starts. The machine gets no answers from its request number `dies_at` on.
/// Returns the number of starts, and the final state of the trigger.
async fn die_at(
    harness: &SchedulerHarness,
    dies_at: usize,
    last_words: Fault,
    start: impl Fn(&'static str) -> Machine,
) -> (usize, TriggerState) {
    let control = operator(harness);
    let first = start("first");
    until_listed(&control).await;
    first.stop().await;
    let number = trigger(&control).await;
    let a = start("a");
    let requests = AtomicUsize::new(0);
    a.connection.choose(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        before if before < dies_at => None,
        this if this == dies_at => Some(last_words),
        _ => Some(Fault::Hang),
    });
    let b = start("b");

    sleep(secs(40)).await;
    a.crash();
    sleep(secs(120)).await;
    let state = control.trigger_state("job", number).await.unwrap();
    b.stop().await;
    (harness.log.count(), state)
}

#[tokio::test(start_paused = true)]
async fn death_at_any_request_starts_no_trigger_twice_and_loses_no_answer() {
    let (mut started, mut without_body) = (0, 0);
    for last_words in [Fault::Hang, Fault::HangReply] {
        for dies_at in 0..40 {
            let harness = SchedulerHarness::new();
            let start = |name| harness.start(name, [job(&harness, name, secs(5))]);

            let (starts, state) = die_at(&harness, dies_at, last_words, start).await;

            assert!(starts <= 1, "{last_words:?} at {dies_at}: {:?}", harness.log.bodies());
            assert_eq!(state, TriggerState::Answered(TriggerAnswer::Started), "at {dies_at}");
            let runs = operator(&harness).history("job", &RunQuery::new()).await.unwrap();
            assert_eq!(runs.len(), 1, "the run is in the history: {runs:?}");
            started += starts;
            without_body += 1 - starts;
        }
    }
    println!("80 deaths: {started} bodies started once, {without_body} died before their body");
    assert!(without_body < 10, "{without_body}");
}

/// The control of the test above: if the marks of triggers are forgotten, a trigger starts twice.
#[tokio::test(start_paused = true)]
async fn control_without_marks_starts_triggers_twice() {
    let mut twice = 0;
    for dies_at in 0..40 {
        let harness = SchedulerHarness::new();
        let start = |name| {
            let connection = Faulty::new(harness.store.clone()).with_latency(secs(0));
            let forgets = MARKS_OF_TRIGGERS;
            let table = Forgetful { store: Arc::new(connection.clone()), forgets };
            let job = job(&harness, name, secs(5));
            harness.start_on(name, SignedDuration::ZERO, connection, table, [job])
        };

        let (starts, _) = die_at(&harness, dies_at, Fault::HangReply, start).await;

        twice += usize::from(starts > 1);
    }
    println!("without marks: {twice} of 40 triggers started twice");
    assert!(twice > 0);
}
