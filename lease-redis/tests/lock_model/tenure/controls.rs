//! Searches that leave out one rule of the protocol. Each search finds a violation.

use super::setup::{Again, Clocks, Rule, Setup, Write};
use super::violation::Violation;
use super::{fails, finds};

#[test]
fn missing_deadline_check_gives_two_holders() {
    finds(Rule::DeadlineCheck, Violation::HeldByTwo, right());
    finds(Rule::DeadlineCheck, Violation::HeldByTwo, Setup::batched(Clocks::Right));
}

#[test]
fn extension_after_its_own_deadline_gives_two_holders() {
    finds(Rule::DeadlineOfExtension, Violation::HeldByTwo, right());
}

#[test]
fn missing_request_number_extends_beside_a_successor() {
    let rule = Rule::RequestNumber;
    finds(rule, Violation::ExtendedAfterASuccessor, wrong());
    let beats = right().with_beats([1, 1, 0]);
    finds(rule, Violation::ExtendedAfterASuccessor, Setup { flushes: 1, ..beats });
}

#[test]
fn missing_request_number_prolongs_another_tenure() {
    finds(Rule::RequestNumber, Violation::ProlongedForNobody, right());
}

#[test]
fn missing_request_number_adopts_after_another() {
    finds(Rule::RequestNumber, Violation::AdoptedAfterAnother, Setup::handed_over(Clocks::Right));
}

#[test]
fn ttl_counted_from_the_answered_send_gives_two_holders() {
    let setup = Setup { again: Again::OwnSend, ..right() };
    fails(Violation::HeldByTwo, "again counted from its own send", &setup);
}

#[test]
fn eviction_that_deletes_gives_two_holders() {
    finds(Rule::EvictionKeepsKey, Violation::HeldByTwo, Setup { evictions: 1, ..right() });
}

#[test]
fn release_without_compare_gives_two_holders() {
    finds(Rule::ReleaseCompares, Violation::HeldByTwo, Setup { claims: 3, ..right() });
}

#[test]
fn claim_after_its_release_gives_two_holders() {
    finds(Rule::NewNonceAfterRelease, Violation::HeldByTwo, right());
}

#[test]
fn reservation_of_any_request_reserves_another_tenure() {
    let setup = Setup { reserves: true, ..right() };
    finds(Rule::ReservationNamesRequest, Violation::ReservedForNobody, setup);
}

#[test]
fn holder_that_keeps_a_handed_over_lease_gives_two_holders() {
    finds(Rule::HandOverEndsLease, Violation::HeldByTwo, Setup::handed_over(Clocks::Right));
}

#[test]
fn stream_that_ignores_the_time_repeats_tokens() {
    let setup = Setup { exact_tokens: true, ..right() };
    let rule = Rule::TimeAfterLoss;
    finds(rule, Violation::TokensOutOfOrder, Setup { flushes: 1, ..setup });
    finds(rule, Violation::OneTokenTwice, Setup { flushes: 1, ..setup });
    finds(rule, Violation::TokensOutOfOrder, Setup { promotions: 1, ..setup });
}

#[test]
fn pipeline_extends_beside_a_successor_after_lost_data() {
    let pipeline = Setup { write: Write::Pipeline, ..right().with_beats([1, 1, 0]) };
    let violation = Violation::ExtendedAfterASuccessor;
    fails(violation, "pipeline, a flush", &Setup { flushes: 1, ..pipeline });
    fails(violation, "pipeline, a restart", &Setup { restarts: 1, ..pipeline });
    fails(violation, "pipeline, a promotion", &Setup { promotions: 1, ..pipeline });
    let batched = Setup { write: Write::Pipeline, flushes: 1, ..Setup::batched(Clocks::Right) };
    fails(violation, "batches as a pipeline, a flush", &batched);
}

#[test]
fn pipeline_of_one_run_extends_beside_a_successor_after_a_flush() {
    let one_run = Setup { write: Write::PipelineOfOneRun, ..right().with_beats([1, 1, 0]) };
    let violation = Violation::ExtendedAfterASuccessor;
    fails(violation, "one run, a flush", &Setup { flushes: 1, ..one_run });
    fails(violation, "one run, wrong clocks", &Setup { clocks: Clocks::Wrong, ..one_run });
}

fn right() -> Setup {
    Setup::contended(Clocks::Right)
}

fn wrong() -> Setup {
    Setup::contended(Clocks::Wrong)
}
