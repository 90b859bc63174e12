//! Triggers that start no run, and their answers.

use lease_core::{Locker, Switch, TableSwitch};
use lease_scheduler::{Trigger, TriggerAnswer, TriggerState, Triggered};
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;

use crate::commands::{hourly, job, operator, trigger, until_listed};
use crate::harness::{SchedulerHarness, key, secs};

fn answered(answer: TriggerAnswer) -> TriggerState {
    TriggerState::Answered(answer)
}

/// One machine runs the job, because of a tick or a trigger. Another machine, or the same one, refuses the trigger.
#[tokio::test(start_paused = true)]
async fn trigger_during_a_run_is_refused_by_default() {
    let (warnings, _listening) = Warnings::listen();
    for machines in [&["a"][..], &["a", "b", "c"]] {
        let harness = SchedulerHarness::new();
        let job = |by| job(&harness, by, secs(600)).on(hourly());
        let _machines: Vec<_> =
            machines.iter().map(|name| harness.start(name, [job(*name)])).collect();
        let control = operator(&harness);
        harness.until("2026-11-21T01:01:00Z").await;
        assert_eq!(harness.log.count(), 1);

        let during_tick = trigger(&control).await;
        let answer = control.wait_for_answer("job", during_tick).await.unwrap();
        assert_eq!(answer, answered(TriggerAnswer::JobRuns));
        harness.until("2026-11-21T01:30:00Z").await;
        let first = trigger(&control).await;
        control.wait_for_answer("job", first).await.unwrap();
        let during_trigger = trigger(&control).await;
        let answer = control.wait_for_answer("job", during_trigger).await.unwrap();
        assert_eq!(answer, answered(TriggerAnswer::JobRuns));

        harness.until("2026-11-21T01:50:00Z").await;
        assert_eq!(harness.log.count(), 2);
    }
    let lines = warnings.lines();
    assert_eq!(lines.len(), 4, "one for each refused trigger: {lines:?}");
    assert!(lines[0].contains("trigger refused") && lines[0].contains("job runs"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn trigger_that_no_scheduler_starts_in_time_expires() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;
    machine.stop().await;
    let within = Trigger::new().start_within(secs(60)).unwrap();
    let Triggered::Accepted(number) = control.trigger("job", &within).await.unwrap() else {
        panic!()
    };
    sleep(secs(61)).await;
    assert_eq!(control.trigger_state("job", number).await.unwrap(), TriggerState::Waiting);

    let _machine = harness.start("b", [job(&harness, "b", secs(1))]);

    let answer = control.wait_for_answer("job", number).await.unwrap();
    assert_eq!(answer, answered(TriggerAnswer::Expired));
    sleep(secs(60)).await;
    assert_eq!(harness.log.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn expired_trigger_without_scheduler_is_replaced() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;
    machine.stop().await;
    let within = Trigger::new().with_id("one").start_within(secs(60)).unwrap();
    let Triggered::Accepted(first) = control.trigger("job", &within).await.unwrap() else {
        panic!()
    };
    let other = control.trigger("job", &Trigger::new()).await.unwrap();
    assert_eq!(other, Triggered::OtherWaits(first), "it has not expired");
    sleep(secs(61)).await;

    let second = trigger(&control).await;

    assert_eq!(
        control.trigger_state("job", first).await.unwrap(),
        answered(TriggerAnswer::Expired)
    );
    let _machine = harness.start("b", [job(&harness, "b", secs(1))]);
    let answer = control.wait_for_answer("job", second).await.unwrap();
    assert_eq!(answer, answered(TriggerAnswer::Started));
    sleep(secs(60)).await;
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn trigger_of_switched_off_job_is_refused() {
    let harness = SchedulerHarness::new();
    let (locker, table) = (Locker::new(harness.store.clone()), harness.store.clone());
    let switch = TableSwitch::new(key("switch"), &locker, table);
    let _machine = harness.start("a", [job(&harness, "a", secs(1)).with_switch(switch.clone())]);
    let control = operator(&harness);
    until_listed(&control).await;

    let number = trigger(&control).await;
    let answer = control.wait_for_answer("job", number).await.unwrap();
    assert_eq!(answer, answered(TriggerAnswer::Disabled));

    switch.turn_on().await.unwrap();
    let number = trigger(&control).await;
    control.wait_for_answer("job", number).await.unwrap();
    sleep(secs(5)).await;
    assert_eq!(harness.log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn trigger_starts_only_where_the_condition_holds() {
    let harness = SchedulerHarness::new();
    let never = job(&harness, "a", secs(1)).only_if(|| false);
    let _machines =
        [harness.start("a", [never]), harness.start("b", [job(&harness, "b", secs(1))])];
    let control = operator(&harness);
    until_listed(&control).await;

    let number = trigger(&control).await;
    let answer = control.wait_for_answer("job", number).await.unwrap();
    sleep(secs(5)).await;

    assert_eq!(answer, answered(TriggerAnswer::Started));
    assert_eq!(harness.log.bodies()[0].by, "b");
}

#[tokio::test(start_paused = true)]
async fn withdrawn_trigger_starts_no_run() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;
    machine.stop().await;
    let number = trigger(&control).await;

    assert!(control.withdraw("job", number).await.unwrap());
    let _machine = harness.start("b", [job(&harness, "b", secs(1))]);
    sleep(secs(60)).await;

    assert_eq!(harness.log.count(), 0);
    let state = control.trigger_state("job", number).await.unwrap();
    assert_eq!(state, answered(TriggerAnswer::Withdrawn));
    let started = trigger(&control).await;
    control.wait_for_answer("job", started).await.unwrap();
    assert!(!control.withdraw("job", started).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn refused_trigger_is_sent_again_with_its_id() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;
    machine.stop().await;
    let ticket = Trigger::new().with_id("ticket-4711");
    let Triggered::Accepted(first) = control.trigger("job", &ticket).await.unwrap() else {
        panic!()
    };
    assert!(control.withdraw("job", first).await.unwrap());

    let second = control.trigger("job", &ticket).await.unwrap();

    let Triggered::Accepted(second) = second else { panic!("{second:?}") };
    let _machine = harness.start("b", [job(&harness, "b", secs(1))]);
    let answer = control.wait_for_answer("job", second).await.unwrap();
    assert_eq!(answer, answered(TriggerAnswer::Started));
    let third = control.trigger("job", &ticket).await.unwrap();
    assert_eq!(third, Triggered::Repeated(second));
}

#[tokio::test(start_paused = true)]
async fn answer_of_an_old_trigger_is_forgotten() {
    let harness = SchedulerHarness::new();
    let _machine = harness.start("a", [job(&harness, "a", secs(1))]);
    let control = operator(&harness);
    until_listed(&control).await;
    let mut numbers = Vec::new();

    for _ in 0..11 {
        let number = trigger(&control).await;
        control.wait_for_answer("job", number).await.unwrap();
        numbers.push(number);
        sleep(secs(5)).await;
    }

    assert!(numbers.is_sorted());
    let state = async |number| control.trigger_state("job", number).await.unwrap();
    assert_eq!(state(numbers[0]).await, TriggerState::Forgotten);
    assert_eq!(state(numbers[1]).await, answered(TriggerAnswer::Started));
}
