//! Searches with all rules, and searches without one rule, which find a broken promise.

use super::setup::{Rule, Setup};
use super::step::Violation;
use lease_test_servers::search::search;

#[test]
fn freed_key_wakes_each_waiter() {
    sound("two processes", &Setup { rewrites: 2, ..Setup::of(2) });
    sound("three processes", &Setup { requests: 2, rewrites: 0, ..Setup::of(3) });
}

#[test]
fn renewed_subscription_wakes_the_waiter() {
    sound("a cut", &Setup { cuts: 1, ..Setup::of(2) });
    sound("a loss of data", &Setup { rewrites: 0, losses: 1, ..Setup::of(2) });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_waiters() {
    sound("a cut and a loss of data", &Setup { cuts: 1, losses: 1, ..Setup::of(2) });
    sound("four requests", &Setup { requests: 4, ..Setup::of(2) });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_waiters() {
    sound("three processes, heartbeats", &Setup { requests: 2, ..Setup::of(3) });
    let two = Setup { requests: 2, rewrites: 0, ..Setup::of(3) };
    sound("three processes, a cut", &Setup { cuts: 1, ..two });
    sound("three processes, a cut and a loss of data", &Setup { cuts: 1, losses: 1, ..two });
    sound("three processes, three requests", &Setup { requests: 3, ..two });
}

#[test]
fn mark_in_a_second_step_makes_a_key_without_a_ttl() {
    finds(Rule::MarkInOneScript, Violation::KeyWithoutTtl, Setup::of(2));
}

#[test]
fn unconfirmed_subscription_loses_a_wake_up() {
    finds(Rule::ConfirmedBeforeMark, Violation::LostWakeUp, Setup::of(2));
}

#[test]
fn renewed_subscription_without_a_request_loses_a_wake_up() {
    let setup = Setup { cuts: 1, ..Setup::of(2) };
    finds(Rule::LookAfterRenewal, Violation::LostWakeUp, setup);
}

#[test]
fn message_ignored_during_a_request_loses_a_wake_up() {
    finds(Rule::MessageDuringLook, Violation::LostWakeUp, Setup::of(2));
}

#[test]
fn sleep_without_an_end_loses_a_wake_up() {
    finds(Rule::TimeLeft, Violation::LostWakeUp, Setup::of(2));
}

#[test]
fn lost_mark_loses_a_wake_up() {
    for rule in [Rule::BeatKeepsMark, Rule::AdoptionKeepsMark, Rule::EvictionKeepsMark] {
        finds(rule, Violation::LostWakeUp, Setup::of(2));
    }
}

/// The waiter sleeps as long as the former lease, although the reservation may be shorter.
#[test]
fn silent_reservation_loses_a_wake_up() {
    finds(Rule::ReservationPublishes, Violation::LostWakeUp, Setup::of(2));
}

#[track_caller]
fn sound(what: &str, setup: &Setup) {
    let found = search(setup, &[Violation::LostWakeUp, Violation::KeyWithoutTtl]);

    println!("waiters, {what}: {found}");
    assert!(found.violation.is_none(), "{what}: {found}");
}

#[track_caller]
fn finds(rule: Rule, violation: Violation, setup: Setup) {
    let found = search(&Setup { without: Some(rule), ..setup }, &[violation]);

    println!("waiters, without {rule:?}: {found}");
    assert!(found.violation.is_some(), "without {rule:?}: {found}");
}
