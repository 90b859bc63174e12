//! Triggers that a scheduler has taken, and has not started: it died before the mark.

use std::time::Duration;

use jiff::SignedDuration;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_scheduler::{
    Job, JobControl, Trigger, TriggerAnswer, TriggerNumber, TriggerState, Triggered,
};
use tokio::time::{sleep, timeout};

use crate::commands::{job, operator, trigger, until_listed};
use crate::harness::{SchedulerHarness, key, secs};

const AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// Sends a trigger that expires after a minute. A machine takes it, dies before the mark, and loses the job's lease.
async fn taken_trigger(harness: &SchedulerHarness, control: &JobControl) -> TriggerNumber {
    let number = trigger_of_dead_machine(harness, control, 2).await;
    sleep(secs(40)).await;
    assert_eq!(state(control, number).await, TriggerState::Waiting);
    assert_eq!(harness.log.count(), 0);
    number
}

/// Sends a trigger that expires after a minute. The machine that serves it gets no answers after this number of
/// writes, and dies: the first write looks for the job's record, the second one takes the trigger, the third one is the
/// mark. The dead machine still holds the job's lease.
async fn trigger_of_dead_machine(
    harness: &SchedulerHarness,
    control: &JobControl,
    answered: usize,
) -> TriggerNumber {
    let first = harness.start("first", [job(harness, "first", secs(1))]);
    until_listed(control).await;
    first.stop().await;
    let trigger = Trigger::new().start_within(secs(60)).unwrap();
    let Triggered::Accepted(number) = control.trigger("job", &trigger).await.unwrap() else {
        panic!()
    };
    let a = harness.start("a", [job(harness, "a", secs(1))]);
    let mut writes = 0;
    a.connection.choose(move |call| {
        writes += usize::from(call == Call::Write);
        (writes > answered).then_some(Fault::Hang)
    });
    sleep(secs(1)).await;
    a.crash();
    assert!(!harness.is_free("job").await, "a holds the lease");
    number
}

async fn state(control: &JobControl, number: TriggerNumber) -> TriggerState {
    control.trigger_state("job", number).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn taken_trigger_is_started_by_the_next_holder() {
    let harness = SchedulerHarness::new();
    let control = operator(&harness);
    let number = taken_trigger(&harness, &control).await;

    let _b = harness.start("b", [job(&harness, "b", secs(1))]);

    let answer = control.wait_for_answer("job", number).await.unwrap();
    assert_eq!(answer, TriggerState::Answered(TriggerAnswer::Started));
    sleep(secs(60)).await;
    assert_eq!(harness.log.count(), 1);
}

/// Machine b reads the trigger. Before b obtains the job's lease, machine c obtains it, refuses the trigger and
/// releases the lease.
#[tokio::test(start_paused = true)]
async fn taken_trigger_that_was_refused_after_a_read_does_not_start() {
    let harness = SchedulerHarness::new();
    let control = operator(&harness);
    let number = taken_trigger(&harness, &control).await;

    let b = harness.start("b", [job(&harness, "b", secs(1))]);
    b.connection.next(Call::Obtain, Fault::DelayRequest(secs(2)));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(b.connection.calls(Call::Obtain), 1, "b has read the trigger");
    let _c = harness.start_ahead("c", AHEAD, [job(&harness, "c", secs(1))]);
    sleep(secs(1)).await;
    let expired = TriggerState::Answered(TriggerAnswer::Expired);
    assert_eq!(state(&control, number).await, expired);
    sleep(secs(30)).await;

    assert_eq!(state(&control, number).await, expired);
    assert_eq!(harness.log.count(), 0);
}

/// Machine b, whose clock is ahead, holds the job's lease and refuses the trigger. Before the refusal arrives, b loses
/// the lease, and machine c starts the trigger. Machine c then obtains no further lease, so it does not answer.
#[tokio::test(start_paused = true)]
async fn late_refusal_of_taken_trigger_that_was_started_is_rejected() {
    let harness = SchedulerHarness::new();
    let control = operator(&harness);
    let number = taken_trigger(&harness, &control).await;
    let ttl = Duration::from_millis(500);

    let job = job(&harness, "b", secs(1)).lease_ttl(ttl).unwrap();
    let b = harness.start_ahead("b", AHEAD, [job]);
    let mut obtains = 0;
    b.connection.choose(move |call| {
        obtains += usize::from(call == Call::Obtain);
        match call {
            Call::Heartbeat => Some(Fault::Hang),
            Call::Obtain if obtains == 2 => Some(Fault::DelayRequest(3 * ttl)),
            _ => None,
        }
    });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(b.connection.calls(Call::Obtain), 2, "b is about to write the refusal");
    let holder = harness.store.holder(&key("job")).await.unwrap().unwrap();
    assert_eq!(holder.lessee.as_str(), "b");
    sleep(ttl).await;
    let connection = Faulty::new(harness.store.clone()).with_latency(Duration::from_millis(2));
    let (cut_off, log) = (connection.clone(), harness.log.clone());
    let started = Job::new(key("job"), move |job| {
        cut_off.every(Call::Obtain, Fault::Hang);
        let guard = log.begin("c", &job);
        async move {
            sleep(secs(600)).await;
            drop(guard);
            Ok(())
        }
    });
    let _c = harness.start_on("c", SignedDuration::ZERO, connection.clone(), connection, [started]);
    let answer = timeout(secs(60), control.wait_for_answer("job", number)).await.unwrap().unwrap();

    assert_eq!(harness.log.count(), 1, "c has started the trigger");
    assert_eq!(answer, TriggerState::Answered(TriggerAnswer::Started));
}

#[tokio::test(start_paused = true)]
async fn taken_trigger_is_withdrawn_when_its_lease_has_expired() {
    let harness = SchedulerHarness::new();
    let control = operator(&harness);
    let number = trigger_of_dead_machine(&harness, &control, 2).await;

    assert!(!control.withdraw("job", number).await.unwrap(), "a may still start it");
    sleep(secs(40)).await;
    assert!(control.withdraw("job", number).await.unwrap());

    assert_eq!(state(&control, number).await, TriggerState::Answered(TriggerAnswer::Withdrawn));
    assert!(harness.is_free("job").await);
    let next = trigger(&control).await;
    let _b = harness.start("b", [job(&harness, "b", secs(1))]);
    let answer = control.wait_for_answer("job", next).await.unwrap();
    assert_eq!(answer, TriggerState::Answered(TriggerAnswer::Started));
    sleep(secs(60)).await;
    assert_eq!(harness.log.count(), 1);
}

/// The machine dies after the mark, and so after the start.
#[tokio::test(start_paused = true)]
async fn started_trigger_is_not_withdrawn_after_the_death_of_its_machine() {
    let harness = SchedulerHarness::new();
    let control = operator(&harness);
    let number = trigger_of_dead_machine(&harness, &control, 3).await;
    sleep(secs(40)).await;

    assert!(!control.withdraw("job", number).await.unwrap());

    assert_eq!(state(&control, number).await, TriggerState::Answered(TriggerAnswer::Started));
}
