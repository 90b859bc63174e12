//! Jobs that are asked for: who has a say before one runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{Attributes, LeaseTable, Locker, StoreError, StoreErrorKind};
use lease_scheduler::{DisabledBy, Ending, Job, Outcome, Skip, Switch, TableSwitch};
use tokio::time::sleep;

use crate::world::{World, key, secs};

fn switch(world: &World) -> TableSwitch {
    TableSwitch::new(key("switch"), &Locker::new(world.store.clone()), world.store.clone())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_elsewhere_is_skipped_and_says_where() {
    let world = World::new();
    let job = |by| Job::new(key("export"), world.log.body(by, secs(10)));
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    let running = tokio::spawn(async move { a.handle.run_now("export").await });
    sleep(secs(1)).await;

    let run = b.handle.run_now("export").await.unwrap();

    let Outcome::Skipped(Skip::Held(holder)) = run.outcome else { panic!("{run:?}") };
    assert_eq!(holder.lessee.as_str(), "a");
    assert!(run.body.is_none());
    assert!(matches!(running.await.unwrap().unwrap().outcome, Outcome::Finished));
    assert_eq!(world.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_free_runs_and_tells_what_it_came_to() {
    let world = World::new();
    let job = Job::new(key("export"), |job| async move {
        sleep(secs(3)).await;
        job.note("17 events");
        Ok(())
    });
    let machine = world.start("a", [job]);

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
    assert_eq!(machine.told.words(), ["finished"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_switched_off_is_not_run_and_its_lease_is_not_asked_for() {
    let world = World::new();
    let job = Job::new(key("export"), world.log.body("a", secs(1))).with_switch(switch(&world));
    let machine = world.start("a", [job]);
    let outcome = async || machine.handle.run_now("export").await.unwrap().outcome;

    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::Switch)), "off at first");
    assert_eq!(machine.way.calls(Call::Obtain), 0);

    // Another process turns it.
    switch(&world).turn_on().await.unwrap();
    assert!(matches!(outcome().await, Outcome::Finished));

    switch(&world).turn_off().await.unwrap();
    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::Switch)));
    assert_eq!(world.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_only_where_its_condition_holds() {
    let world = World::new();
    switch(&world).turn_on().await.unwrap();
    let is_production = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_production);
    let job = Job::new(key("import"), world.log.body("a", secs(1)))
        .with_switch(switch(&world))
        .only_if(move || asked.load(Ordering::SeqCst));
    let machine = world.start("a", [job]);

    let run = machine.handle.run_now("import").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Disabled(DisabledBy::OnlyIf)));
    is_production.store(true, Ordering::SeqCst);
    let run = machine.handle.run_now("import").await.unwrap();

    assert!(matches!(run.outcome, Outcome::Finished));
    assert_eq!(world.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_switch_may_be_on_at_first_and_stays_as_it_was_turned() {
    let world = World::new();
    let switch = || switch(&world).on_at_first();

    assert!(switch().is_on().await.unwrap());
    switch().turn_off().await.unwrap();
    assert!(!switch().is_on().await.unwrap());
    switch().turn_on().await.unwrap();
    assert!(switch().is_on().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_is_written_to_by_somebody_else_says_so() {
    let world = World::new();
    let other = Attributes::from([("on".to_owned(), "1".into())]);
    world.store.create(&key("switch"), &other).await.unwrap();

    let error = switch(&world).is_on().await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
}

/// A flag service that is down.
#[derive(Debug)]
struct Unreachable;

#[async_trait]
impl Switch for Unreachable {
    async fn is_on(&self) -> Result<bool, StoreError> {
        Err(StoreError::new(StoreErrorKind::Unavailable, "connection reset"))
    }
}

/// A flag service that does not answer.
#[derive(Debug)]
struct Hanging;

#[async_trait]
impl Switch for Hanging {
    async fn is_on(&self) -> Result<bool, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_switch_cannot_say_nothing_is_run() {
    let world = World::new();
    let body = || world.log.body("a", secs(1));
    let machine = world.start(
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
    assert_eq!(world.log.count(), 0);
    let refused = Unreachable.turn_on().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn turning_is_repeated_until_it_is_known_to_be_done() {
    let world = World::new();
    let way = Faulty::new(world.store.clone());
    let switch = TableSwitch::new(key("switch"), &Locker::new(way.clone()), way.clone());
    way.next(Call::Write, Fault::Fail);
    way.next(Call::Write, Fault::LoseReply);

    switch.turn_on().await.unwrap();

    assert!(switch.is_on().await.unwrap());
    assert_eq!(way.calls(Call::Write), 3);
}

#[tokio::test(start_paused = true)]
async fn a_late_turn_does_not_undo_a_newer_one() {
    let world = World::new();
    let way = Faulty::new(world.store.clone());
    let late = TableSwitch::new(key("switch"), &Locker::new(way.clone()), way.clone());
    way.every(Call::Write, Fault::ApplyLate(secs(20)));

    late.turn_off().await.unwrap_err();
    switch(&world).turn_on().await.unwrap();
    sleep(Duration::from_secs(60)).await;

    assert!(switch(&world).is_on().await.unwrap(), "what was given up came later");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_refused() {
    let world = World::new();
    let machine = world.start("a", []);

    let text = machine.handle.run_now("export").await.unwrap_err().to_string();
    assert_eq!(text, "no job is called \"export\"");
    let error = machine.handle.history("export").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
}
