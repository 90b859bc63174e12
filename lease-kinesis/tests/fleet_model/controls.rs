//! Searches that leave out one rule of the protocol. Each search must find a violation.

use super::finds;
use super::setup::{FirstLease, Rule, Setup};

#[test]
fn counter_without_the_token_hides_a_restart() {
    finds(Rule::CounterNamesSession, Setup { crashes: 1, restarts: 1, ..Setup::of(3) });
}

#[test]
fn count_before_the_write_loses_a_notice() {
    finds(Rule::WriteBeforeCount, Setup { hand_overs: 1, ..Setup::of(2) });
}

#[test]
fn removed_counter_that_does_not_return_hides_a_worker() {
    finds(Rule::LostCounterReturns, Setup { removed_rows: 1, hand_overs: 1, ..Setup::of(2) });
}

#[test]
fn counter_that_returns_at_one_hides_a_notice() {
    finds(Rule::ReturnedCounterExceeds, Setup { removed_rows: 1, ..Setup::of(2) });
}

#[test]
fn unanswered_count_that_is_not_counted_repeats_its_number() {
    let setup = Setup { removed_rows: 1, unanswered_counts: 1, hand_overs: 1, ..Setup::of(2) };
    finds(Rule::UnansweredCountIsCounted, setup);
}

#[test]
fn reader_that_ignores_a_gap_is_mistaken() {
    finds(Rule::GapLists, Setup { hand_overs: 1, ..Setup::of(2) });
}

#[test]
fn session_without_counter_outside_the_ring_is_never_ended() {
    let setup = Setup { crashes: 1, removed_rows: 1, ..Setup::of(2) };
    finds(Rule::UncountedStaysInRing, setup);
}

/// The successor of A is B, which has not seen the counter of C.
#[test]
fn session_without_counter_behind_the_successor_is_never_ended() {
    finds(Rule::UncountedIsWatched, Setup { crashes: 1, removed_rows: 1, ..Setup::of(3) });
}

#[test]
fn absent_row_that_proves_nothing_and_is_not_ended_keeps_the_shard() {
    finds(Rule::AbsentRowIsEnded, Setup { crashes: 1, removed_rows: 1, ..Setup::of(2) });
}

/// No notice reports a lease of the earlier mode.
#[test]
fn refused_claim_without_a_read_is_repeated() {
    finds(Rule::RefusedIsRead, Setup { claims_of_earlier_mode: 1, ..Setup::of(2) });
}

#[test]
fn settled_claim_without_a_notice_leaves_a_free_shard() {
    finds(Rule::SettledIsReported, Setup { unclear_claims: 1, ..Setup::of(2) });
}

#[test]
fn lease_with_a_ttl_that_is_not_read_again_is_held_for_ever() {
    let first_lease = FirstLease::OfEarlierMode;
    finds(Rule::ExpiringIsRead, Setup { first_lease, ..Setup::of(2) });
}
