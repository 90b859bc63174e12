//! Triggers that start a run on another machine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use lease_core::StoreErrorKind;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{BootClock, Clock};
use lease_scheduler::{Concurrency, Ending, Job, Trigger, TriggerAnswer, TriggerState, Triggered};
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;
use tracing::{Level, info};

use crate::commands::{hourly, job, operator, operator_on, trigger, until_listed};
use crate::forgetful::Forgetful;
use crate::harness::{SchedulerHarness, key, secs};

const STARTED: TriggerState = TriggerState::Answered(TriggerAnswer::Started);

#[tokio::test(start_paused = true)]
async fn trigger_starts_one_run_within_a_second_with_arguments() {
    let harness = SchedulerHarness::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let job = |by: &'static str| {
        let seen = Arc::clone(&seen);
        Job::new(key("job"), move |job| {
            let (began, day) = (BootClock::new().now(), job.arguments().get("day").cloned());
            seen.lock().unwrap().push((by, began, day, job.trigger()));
            async { Ok(()) }
        })
    };
    let machines = ["a", "b", "c"].map(|name| harness.start(name, [job(name).on(hourly())]));
    let control = operator(&harness);
    harness.until("2026-11-21T00:30:00Z").await;
    let sent = BootClock::new().now();

    let day = Trigger::new().with_argument("day", "2026-11-20");
    let Triggered::Accepted(number) = control.trigger("job", &day).await.unwrap() else { panic!() };
    assert_eq!(control.wait_for_answer("job", number).await.unwrap(), STARTED);

    sleep(secs(600)).await;
    let seen = seen.lock().unwrap().clone();
    let [(by, began, day, of)] = &seen[..] else { panic!("{seen:?}") };
    assert!(began.since(sent) < secs(1), "{:?}", began.since(sent));
    assert_eq!((day, *of), (&Some("2026-11-20".into()), Some(number)));
    let runs = control.history("job", &lease_scheduler::RunQuery::new()).await.unwrap();
    let run = &runs[0];
    assert_eq!((runs.len(), run.trigger, run.ending), (1, Some(number), Ending::Finished));
    assert_eq!(run.by, *by);
    let finished: usize =
        machines.iter().filter_map(|machine| machine.reports.counts().remove("finished")).sum();
    assert_eq!(finished, 1);
}

/// `DynamoDB` reports no changes of its records.
#[tokio::test(start_paused = true)]
async fn trigger_on_store_without_watches_starts_within_a_second() {
    let harness = SchedulerHarness::new();
    let connection = Faulty::new(harness.store.clone()).with_latency(Duration::from_millis(2));
    let table = Forgetful { store: Arc::new(connection.clone()), forgets: &[] };
    let job = job(&harness, "a", secs(1));
    let _a = harness.start_on("a", SignedDuration::ZERO, connection, table, [job]);
    let control = operator(&harness);
    until_listed(&control).await;

    for round in 0..20 {
        sleep(Duration::from_millis(2000 + round * 37)).await;
        let sent = BootClock::new().now();
        let _number = trigger(&control).await;
        sleep(secs(3)).await;
        let began = harness.log.bodies().last().unwrap().began;
        assert!(began > sent && began.since(sent) < secs(1), "{:?}", began.since(sent));
    }
    assert_eq!(harness.log.count(), 20);
}

#[tokio::test(start_paused = true)]
async fn trigger_during_a_run_waits_if_one_may_queue() {
    let harness = SchedulerHarness::new();
    let queueing = |by| job(&harness, by, secs(120)).concurrency(Concurrency::QueueOne);
    let _machines = ["a", "b"].map(|name| harness.start(name, [queueing(name)]));
    let control = operator(&harness);
    until_listed(&control).await;
    let first = trigger(&control).await;
    assert_eq!(control.wait_for_answer("job", first).await.unwrap(), STARTED);

    let second = trigger(&control).await;
    let third = control.trigger("job", &Trigger::new()).await.unwrap();
    assert_eq!(third, Triggered::OtherWaits(second), "one waits at most");
    sleep(secs(60)).await;
    assert_eq!(harness.log.count(), 1);
    assert_eq!(control.trigger_state("job", second).await.unwrap(), TriggerState::Waiting);
    assert_eq!(control.job("job").await.unwrap().unwrap().waiting, Some(second));
    sleep(secs(300)).await;

    assert_eq!(harness.log.count(), 2);
    assert_eq!(harness.log.overlaps(), 0);
    assert_eq!(control.trigger_state("job", second).await.unwrap(), STARTED);
    let bodies = harness.log.bodies();
    let pause = bodies[1].began.since(bodies[0].ended.unwrap());
    assert!(pause <= secs(2), "it starts when the run ends: {pause:?}");
}

#[tokio::test(start_paused = true)]
async fn trigger_with_lost_replies_starts_one_run() {
    for fault in [Fault::LoseReply, Fault::Fail] {
        for faults in 1..3 {
            let harness = SchedulerHarness::new();
            let _machine = harness.start("a", [job(&harness, "a", secs(1))]);
            let connection = Faulty::new(harness.store.clone());
            let control = operator_on(&harness, connection.clone());
            until_listed(&control).await;
            for _ in 0..faults {
                connection.next(Call::Write, fault);
            }

            let number = trigger(&control).await;
            assert_eq!(control.wait_for_answer("job", number).await.unwrap(), STARTED);
            sleep(secs(60)).await;

            assert_eq!(harness.log.count(), 1, "{fault:?}, {faults} times");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_id_starts_no_second_run() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;
    machine.stop().await;
    let ticket = Trigger::new().with_id("ticket-4711");

    let Triggered::Accepted(number) = control.trigger("job", &ticket).await.unwrap() else {
        panic!()
    };
    let waiting = control.trigger("job", &ticket).await.unwrap();
    assert_eq!(waiting, Triggered::Repeated(number));
    let _machine = harness.start("b", [job(&harness, "b", secs(1))]);
    assert_eq!(control.wait_for_answer("job", number).await.unwrap(), STARTED);
    let answered = control.trigger("job", &ticket).await.unwrap();
    assert_eq!(answered, Triggered::Repeated(number));
    sleep(secs(60)).await;

    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn trigger_of_unknown_job_or_with_long_arguments_is_rejected() {
    let harness = SchedulerHarness::new();
    let _machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;

    let unknown = control.trigger("none", &Trigger::new()).await.unwrap_err();
    let long = Trigger::new().with_argument("text", "x".repeat(20_000));
    let long = control.trigger("job", &long).await.unwrap_err();
    let long_id = Trigger::new().with_id("x".repeat(257));
    let long_id = control.trigger("job", &long_id).await.unwrap_err();

    assert_eq!(unknown.kind(), StoreErrorKind::Refused);
    assert_eq!(long.kind(), StoreErrorKind::Refused);
    assert_eq!(long_id.kind(), StoreErrorKind::Refused);
    assert!(Trigger::new().start_within(Duration::ZERO).is_err());
}

#[tokio::test(start_paused = true)]
async fn body_runs_in_its_span() {
    let (log, _listening) = Warnings::listen_from(Level::INFO);
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), |_job| async {
        info!("imported");
        Ok(())
    });
    let _machine = harness.start("a", [job]);
    let control = operator(&harness);
    until_listed(&control).await;

    let number = trigger(&control).await;
    sleep(secs(5)).await;

    let runs = control.history("job", &lease_scheduler::RunQuery::new()).await.unwrap();
    let lines = log.lines();
    let line = lines.iter().find(|line| line.contains("imported")).unwrap();
    let (token, trigger) = (format!("token={}", runs[0].token), format!("trigger={number}"));
    for field in ["job{key=job", "lessee=a", "attempt=1", "scheduled=2026-", &token, &trigger] {
        assert!(line.contains(field), "{field}: {line}");
    }
}
