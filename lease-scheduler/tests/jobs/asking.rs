//! Runs on demand, and the conditions under which they start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LeaseTable;
use lease_core::{Attributes, Locker, StoreError, StoreErrorKind};
use lease_scheduler::{DisabledBy, Ending, Job, Outcome, Skip, Switch, TableSwitch};
use tokio::time::sleep;

use crate::harness::{SchedulerHarness, key, secs};

fn switch(harness: &SchedulerHarness) -> TableSwitch {
    TableSwitch::new(key("switch"), &Locker::new(harness.store.clone()), harness.store.clone())
}

#[tokio::test(start_paused = true)]
async fn job_held_by_other_machine_is_skipped_with_its_holder() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("export"), harness.log.body(by, secs(10)));
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    let running = tokio::spawn(async move { a.handle.run_now("export").await });
    sleep(secs(1)).await;

    let run = b.handle.run_now("export").await.unwrap();

    let Outcome::Skipped(Skip::Held(holder)) = run.outcome else { panic!("{run:?}") };
    assert_eq!(holder.lessee.as_str(), "a");
    assert!(run.body.is_none());
    assert!(matches!(running.await.unwrap().unwrap().outcome, Outcome::Finished));
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn free_job_runs_and_returns_its_outcome() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("export"), |job| async move {
        sleep(secs(3)).await;
        job.note("17 events");
        Ok(())
    });
    let machine = harness.start("a", [job]);

    let run = machine.handle.run_now("export").await.unwrap();

    let body = run.body.unwrap();
    assert!(matches!(run.outcome, Outcome::Finished));
    assert_eq!((body.note.as_str(), body.run_time), ("17 events", secs(3)));
    let past = machine.handle.last_run("export").await.unwrap().unwrap();
    assert_eq!(
        (past.ending, past.note.as_str(), past.by.as_str()),
        (Ending::Finished, "17 events", "a")
    );
    assert_eq!(past.token, body.token);
    assert!(past.ended.unwrap().duration_since(past.began).as_secs() == 3);
    assert_eq!(machine.reports.texts(), ["finished"]);
}

#[tokio::test(start_paused = true)]
async fn switched_off_job_neither_runs_nor_obtains_lease() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("export"), harness.log.body("a", secs(1))).with_switch(switch(&harness));
    let machine = harness.start("a", [job]);
    let outcome = async || machine.handle.run_now("export").await.unwrap().outcome;

    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::Switch)), "off at first");
    assert_eq!(machine.connection.calls(Call::Obtain), 0);

    switch(&harness).turn_on().await.unwrap();
    assert!(matches!(outcome().await, Outcome::Finished));

    switch(&harness).turn_off().await.unwrap();
    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::Switch)));
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn job_runs_only_where_its_condition_holds() {
    let harness = SchedulerHarness::new();
    switch(&harness).turn_on().await.unwrap();
    let is_production = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_production);
    let job = Job::new(key("import"), harness.log.body("a", secs(1)))
        .with_switch(switch(&harness))
        .only_if(move || asked.load(Ordering::SeqCst));
    let machine = harness.start("a", [job]);

    let run = machine.handle.run_now("import").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Disabled(DisabledBy::OnlyIf)));
    is_production.store(true, Ordering::SeqCst);
    let run = machine.handle.run_now("import").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Finished));
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn switch_on_at_first_keeps_later_state() {
    let harness = SchedulerHarness::new();
    let switch = || switch(&harness).on_at_first();

    assert!(switch().is_on().await.unwrap());
    switch().turn_off().await.unwrap();
    assert!(!switch().is_on().await.unwrap());
    switch().turn_on().await.unwrap();
    assert!(switch().is_on().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn switch_with_foreign_value_returns_corrupt() {
    let harness = SchedulerHarness::new();
    let other = Attributes::from([("on".to_owned(), "1".into())]);
    harness.store.create(&key("switch"), &other).await.unwrap();

    let error = switch(&harness).is_on().await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
}

#[derive(Debug)]
struct Unreachable;

#[async_trait]
impl Switch for Unreachable {
    async fn is_on(&self) -> Result<bool, StoreError> {
        Err(StoreError::new(StoreErrorKind::Unavailable, "connection reset"))
    }
}

#[derive(Debug)]
struct Hanging;

#[async_trait]
impl Switch for Hanging {
    async fn is_on(&self) -> Result<bool, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_switch_runs_nothing() {
    let harness = SchedulerHarness::new();
    let body = || harness.log.body("a", secs(1));
    let machine = harness.start(
        "a",
        [
            Job::new(key("down"), body()).with_switch(Unreachable),
            Job::new(key("hangs"), body()).with_switch(Hanging),
        ],
    );

    for job in ["down", "hangs"] {
        let run = machine.handle.run_now(job).await.unwrap();
        assert!(matches!(run.outcome, Outcome::Skipped(Skip::Unknown(_))), "{run:?}");
    }
    assert_eq!(harness.log.count(), 0);
    let refused = Unreachable.turn_on().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn switch_turn_is_repeated_until_outcome_is_known() {
    let harness = SchedulerHarness::new();
    let connection = Faulty::new(harness.store.clone());
    let switch =
        TableSwitch::new(key("switch"), &Locker::new(connection.clone()), connection.clone());
    connection.next(Call::Write, Fault::Fail);
    connection.next(Call::Write, Fault::LoseReply);

    switch.turn_on().await.unwrap();

    assert!(switch.is_on().await.unwrap());
    assert_eq!(connection.calls(Call::Write), 3);
}

#[tokio::test(start_paused = true)]
async fn late_turn_does_not_undo_newer_turn() {
    let harness = SchedulerHarness::new();
    let connection = Faulty::new(harness.store.clone());
    let late =
        TableSwitch::new(key("switch"), &Locker::new(connection.clone()), connection.clone());
    connection.every(Call::Write, Fault::ApplyLate(secs(20)));

    late.turn_off().await.unwrap_err();
    switch(&harness).turn_on().await.unwrap();
    sleep(Duration::from_secs(60)).await;

    assert!(switch(&harness).is_on().await.unwrap(), "the late turn was applied");
}

#[tokio::test(start_paused = true)]
async fn unknown_job_name_is_rejected() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", []);

    let text = machine.handle.run_now("export").await.unwrap_err().to_string();
    assert_eq!(text, "no job has the name \"export\"");
    let error = machine.handle.history("export").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
}
