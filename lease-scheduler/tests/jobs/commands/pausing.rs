//! Jobs that an operator pauses and resumes.

use std::sync::Arc;

use lease_core::StoreErrorKind;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LeaseTable;
use lease_core::{Attributes, Locker, Switch, TableSwitch, Value};
use lease_scheduler::{Misfire, Outcome};

use crate::commands::{hourly, job, operator, operator_on, trigger};
use crate::forgetful::Forgetful;
use crate::harness::{SchedulerHarness, at, key, secs};

#[tokio::test(start_paused = true)]
async fn pause_and_resume_survive_restarts() {
    let harness = SchedulerHarness::new();
    let start = |name| harness.start(name, [job(&harness, name, secs(1)).on(hourly())]);
    let (a, control) = (start("a"), operator(&harness));
    harness.until("2026-11-21T01:30:00Z").await;

    control.pause("job", "the printer is broken").await.unwrap();
    let pause = control.job("job").await.unwrap().unwrap().paused.unwrap();
    assert_eq!((pause.since, pause.by.as_str()), (at("2026-11-21T01:30:00Z"), "operator"));
    assert_eq!(pause.why, "the printer is broken");
    harness.until("2026-11-21T02:30:00Z").await;
    a.stop().await;
    let b = start("b");
    harness.until("2026-11-21T04:30:00Z").await;
    assert_eq!(harness.log.count(), 1, "no tick starts, also after the restart");
    assert_eq!(b.reports.missed(), [], "ticks of a paused job are not missed");
    assert!(b.reports.texts()[0].contains("an operator has paused it"), "{:?}", b.reports.texts());

    control.resume("job").await.unwrap();
    b.stop().await;
    let c = start("c");
    harness.until("2026-11-21T05:30:00Z").await;

    let ticks: Vec<_> = harness.log.ticks().into_keys().collect();
    assert_eq!(ticks, ["2026-11-21T01:00:00Z", "2026-11-21T05:00:00Z"].map(at));
    assert_eq!(c.reports.missed(), []);
    assert_eq!(control.job("job").await.unwrap().unwrap().paused, None);
}

/// The control of the test above: without the attribute, ticks of a paused job start.
#[tokio::test(start_paused = true)]
async fn control_without_pause_attribute_runs_paused_job() {
    let harness = SchedulerHarness::new();
    let connection = Faulty::new(harness.store.clone());
    let table = Forgetful { store: Arc::new(connection.clone()), forgets: &["job_paused"] };
    let job = job(&harness, "a", secs(1)).on(hourly());
    let _a = harness.start_on("a", jiff::SignedDuration::ZERO, connection, table, [job]);
    let control = operator(&harness);
    harness.until("2026-11-21T01:30:00Z").await;

    control.pause("job", "").await.unwrap();
    harness.until("2026-11-21T04:30:00Z").await;

    assert_eq!(harness.log.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn resumed_job_catches_up_if_its_misfire_policy_does() {
    for misfire in [Misfire::CatchUpOnce, Misfire::StartWithin(secs(7200))] {
        let harness = SchedulerHarness::new();
        let job = |by| job(&harness, by, secs(1)).on(hourly()).misfire(misfire).unwrap();
        let machines = ["a", "b"].map(|name| harness.start(name, [job(name)]));
        let control = operator(&harness);
        harness.until("2026-11-21T00:30:00Z").await;
        control.pause("job", "").await.unwrap();
        harness.until("2026-11-21T03:30:00Z").await;
        assert_eq!(harness.log.count(), 0);

        control.resume("job").await.unwrap();
        harness.until("2026-11-21T03:31:00Z").await;

        let ticks: Vec<_> = harness.log.ticks().into_keys().collect();
        assert_eq!(ticks, [at("2026-11-21T03:00:00Z")], "the last one");
        let missed = machines.each_ref().map(|machine| machine.reports.missed());
        assert_eq!(missed, [[], []], "{misfire:?}: ticks of a paused job are not missed");
    }
}

/// A tick may start up to a minute late by default. Near the end of this minute, the resume may come too late.
#[tokio::test(start_paused = true)]
async fn tick_due_at_the_resume_starts_and_is_not_missed() {
    for (resumed, starts) in [("03:00:05", Some(1)), ("03:00:50", Some(1)), ("03:00:58", None)] {
        let harness = SchedulerHarness::new();
        let machine = harness.start("a", [job(&harness, "a", secs(1)).on(hourly())]);
        let control = operator(&harness);
        harness.until("2026-11-21T02:30:00Z").await;
        control.pause("job", "").await.unwrap();
        harness.until(&format!("2026-11-21T{resumed}Z")).await;

        control.resume("job").await.unwrap();
        harness.until("2026-11-21T03:30:00Z").await;

        let started = harness.log.ticks().get(&at("2026-11-21T03:00:00Z")).copied();
        assert!(starts.is_none() || started == starts, "resumed at {resumed}: {started:?}");
        assert_eq!(machine.reports.missed(), [], "resumed at {resumed}");
    }
}

#[tokio::test(start_paused = true)]
async fn tick_due_when_its_job_is_switched_on_starts() {
    let harness = SchedulerHarness::new();
    let locker = Locker::new(harness.store.clone());
    let switch = TableSwitch::new(key("switch"), &locker, harness.store.clone());
    let switched = job(&harness, "a", secs(1)).on(hourly()).with_switch(switch.clone());
    let machine = harness.start("a", [switched]);
    harness.until("2026-11-21T03:00:05Z").await;

    switch.turn_on().await.unwrap();
    harness.until("2026-11-21T03:30:00Z").await;

    assert_eq!(harness.log.count(), 1);
    assert_eq!(machine.reports.missed(), []);
}

#[tokio::test(start_paused = true)]
async fn paused_job_runs_by_trigger_and_by_call() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1)).on(hourly())]);
    let control = operator(&harness);
    harness.until("2026-11-21T00:30:00Z").await;
    control.pause("job", "").await.unwrap();

    let number = trigger(&control).await;
    control.wait_for_answer("job", number).await.unwrap();
    harness.until("2026-11-21T00:31:00Z").await;
    let run = machine.handle.run_now("job").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Finished));
    assert_eq!(harness.log.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn running_body_continues_when_its_job_is_paused() {
    let harness = SchedulerHarness::new();
    let _machine = harness.start("a", [job(&harness, "a", secs(1800)).on(hourly())]);
    let control = operator(&harness);
    harness.until("2026-11-21T01:10:00Z").await;

    control.pause("job", "").await.unwrap();
    harness.until("2026-11-21T02:30:00Z").await;

    assert_eq!(harness.log.count(), 1);
    assert!(harness.log.bodies()[0].is_complete);
}

#[tokio::test(start_paused = true)]
async fn unreadable_pause_runs_nothing() {
    let harness = SchedulerHarness::new();
    let other = Attributes::from([("job_paused".to_owned(), Value::from(1))]);
    harness.store.create(&key("job/control"), &other).await.unwrap();
    let _machine = harness.start("a", [job(&harness, "a", secs(1)).on(hourly())]);

    harness.until("2026-11-21T02:30:00Z").await;

    assert_eq!(harness.log.count(), 0);
    let error = operator(&harness).job("job").await.unwrap().unwrap().error.unwrap();
    assert!(error.contains("\"job_paused\" of a job cannot be read"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_pause_is_listed_and_removed_by_resume() {
    let harness = SchedulerHarness::new();
    let other = Attributes::from([("job_paused".to_owned(), Value::from(1))]);
    harness.store.create(&key("job/control"), &other).await.unwrap();
    let other = Attributes::from([("job_tick".to_owned(), Value::from(1))]);
    harness.store.create(&key("other"), &other).await.unwrap();
    let _machine = harness.start("a", [job(&harness, "a", secs(1)).on(hourly())]);
    let control = operator(&harness);
    harness.until("2026-11-21T01:30:00Z").await;
    let errors = async || {
        let jobs = control.list("").await.unwrap();
        jobs.into_iter().map(|job| job.error.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(errors().await, [true, true], "each job is listed");

    control.resume("job").await.unwrap();
    harness.until("2026-11-21T02:30:00Z").await;

    assert_eq!(errors().await, [false, true]);
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn pause_with_lost_replies_is_repeated_until_known() {
    let harness = SchedulerHarness::new();
    let _machine = harness.start("a", [job(&harness, "a", secs(1)).on(hourly())]);
    harness.until("2026-11-21T00:30:00Z").await;
    let connection = Faulty::new(harness.store.clone());
    let control = operator_on(&harness, connection.clone());
    connection.next(Call::Write, Fault::Fail);
    connection.next(Call::Write, Fault::LoseReply);

    control.pause("job", "").await.unwrap();

    assert!(control.job("job").await.unwrap().unwrap().paused.is_some());
    assert_eq!(connection.calls(Call::Write), 3);
    let unknown = control.pause("none", "").await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Refused);
}
