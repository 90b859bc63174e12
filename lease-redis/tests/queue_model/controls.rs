//! Searches that leave out one rule of the protocol. Each search finds a violation.

use crate::setup::{Clocks, Counts, Rule, Setup, Skip};
use crate::violation::Violation;
use crate::{fails, finds, keeps};

#[test]
fn grant_counted_from_the_answered_send_gives_two_holders() {
    let setup = Setup { counts: Counts::AnsweredSend, ..right() };
    fails(Violation::HeldByTwo, "counted from the answered send", &setup);
}

#[test]
fn grant_counted_from_the_last_send_gives_two_holders() {
    let setup = Setup { counts: Counts::LastSend, ..right() };
    fails(Violation::HeldByTwo, "counted from the last send", &setup);
}

#[test]
fn grant_counted_from_its_receipt_gives_two_holders() {
    let setup = Setup { counts: Counts::Receipt, ..right() };
    fails(Violation::HeldByTwo, "counted from the receipt", &setup);
}

#[test]
fn grant_accepted_after_its_deadline_gives_two_holders() {
    finds(Rule::DeadlineCheck, Violation::HeldByTwo, right());
}

#[test]
fn heartbeat_without_a_tenure_extends_beside_a_successor() {
    finds(Rule::Tenure, Violation::ExtendedAfterASuccessor, wrong());
    let flush = Setup { flushes: 1, ..right() };
    finds(Rule::Tenure, Violation::ExtendedAfterASuccessor, flush);
}

#[test]
fn heartbeat_without_a_tenure_prolongs_another_tenure() {
    finds(Rule::Tenure, Violation::ProlongedForNobody, right());
}

#[test]
fn adoption_without_a_tenure_adopts_after_another() {
    let setup = Setup::handed_over(Clocks::Right).with_requests([2, 1, 1]);
    finds(Rule::Tenure, Violation::AdoptedAfterAnother, setup);
}

#[test]
fn reservation_without_a_tenure_reserves_another_tenure() {
    finds(Rule::Tenure, Violation::ReservedForNobody, Setup { reserves: true, ..right() });
}

/// A promoted replica lacks the grant to a waiter, and still has the waiter in its queue.
#[test]
fn tenure_named_by_its_request_extends_beside_a_successor() {
    let setup = Setup { promotions: 1, ..right() };
    finds(Rule::TokenNamesTenure, Violation::ExtendedAfterASuccessor, setup);
}

#[test]
fn renewal_that_ignores_expiry_leaves_waiters_stuck() {
    finds(Rule::RenewalSettles, Violation::Stuck, right());
}

#[test]
fn enqueue_that_ignores_the_queue_overtakes() {
    finds(Rule::EnqueueSettles, Violation::Overtaken, three());
}

#[test]
fn release_that_ignores_the_queue_leaves_the_key_free() {
    finds(Rule::EndSettles, Violation::FreeBesideAWaiter, right());
}

/// The renewals of the waiters notice the free key.
#[test]
fn release_that_ignores_the_queue_leaves_no_waiter_stuck() {
    let others = Violation::ALL.map(|it| match it {
        Violation::FreeBesideAWaiter => Violation::Stuck,
        other => other,
    });
    for setup in [right().with_plain([1, 0, 0]), three().with_plain([1, 0, 0])] {
        let setup = Setup { without: Some(Rule::EndSettles), ..setup };
        keeps(&others, "without EndSettles, other promises", &setup);
    }
}

#[test]
fn end_without_compare_gives_two_holders() {
    finds(Rule::EndCompares, Violation::HeldByTwo, three());
}

#[test]
fn release_that_keeps_its_place_is_queued_after_its_end() {
    let plain = right().with_plain([1, 1, 0]);
    finds(Rule::ReleaseLeavesQueue, Violation::QueuedAfterItsEnd, plain);
}

#[test]
fn leave_that_keeps_its_place_is_queued_after_its_end() {
    finds(Rule::LeaveLeavesQueue, Violation::QueuedAfterItsEnd, right());
}

#[test]
fn granted_waiter_that_stays_in_the_queue_is_granted_twice() {
    finds(Rule::GrantLeavesQueue, Violation::GrantedTwice, three());
}

#[test]
fn dead_waiter_is_granted_the_key() {
    finds(Rule::DeadAreSkipped, Violation::GrantedToTheDead, right());
}

#[test]
fn dead_waiter_blocks_the_queue() {
    finds(Rule::DeadBlockNobody, Violation::Stuck, Setup { kills: 1, ..three() });
}

#[test]
fn renewal_that_moves_to_the_end_is_overtaken() {
    finds(Rule::RenewalKeepsPlace, Violation::Overtaken, three().with_requests([1, 2, 1]));
}

#[test]
fn renewal_that_keeps_its_age_loses_its_turn() {
    finds(Rule::RenewalRestartsAge, Violation::LosesItsPlace, right());
}

#[test]
fn nonce_used_again_after_its_end_gives_two_holders() {
    finds(Rule::NewNonceAfterEnd, Violation::HeldByTwo, right());
}

#[test]
fn caller_that_is_skipped_gives_two_holders() {
    for skip in [Skip::Removes, Skip::Passes] {
        let setup = Setup { skip, cuts: 1, ..three().with_requests([1, 2, 1]) };
        finds(Rule::CallerIsHeard, Violation::HeldByTwo, setup);
    }
}

/// Redis sends messages to replicas, too.
#[test]
fn message_to_a_waiter_on_a_replica_gives_two_holders() {
    for skip in [Skip::Removes, Skip::Passes] {
        let setup = Setup { skip, cuts: 1, ..three() };
        finds(Rule::CountBeforePublish, Violation::HeldByTwo, setup);
    }
}

#[test]
fn grant_taken_back_later_gives_two_holders() {
    let setup = Setup { skip: Skip::Removes, cuts: 1, ..right() };
    finds(Rule::SkipInOneScript, Violation::HeldByTwo, setup);
}

#[test]
fn stream_that_ignores_the_time_repeats_tokens() {
    let setup = Setup { exact_tokens: true, flushes: 1, ..right() };
    finds(Rule::TimeAfterLoss, Violation::TokensOutOfOrder, setup);
    finds(Rule::TimeAfterLoss, Violation::OneTokenTwice, setup);
}

fn right() -> Setup {
    Setup::of(2, Clocks::Right)
}

fn wrong() -> Setup {
    Setup::of(2, Clocks::Wrong)
}

fn three() -> Setup {
    Setup::of(3, Clocks::Right).with_requests([1; 3]).with_beats([0; 3])
}
