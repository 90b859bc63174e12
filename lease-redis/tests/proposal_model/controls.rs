//! Negative controls: without a rule, the search finds a broken promise.

use crate::setup::{Rule, Setup};
use crate::violation::Violation;
use crate::{FIRST, RESTORED_AFTER_A_WITHDRAWAL, fails, finds, may_happen, on_time, sound};

#[test]
fn smaller_proposal_repeats_a_token() {
    finds(Rule::LargerThanTheCounter, Violation::OneTokenTwice, Setup::<3>::contended());
    finds(Rule::LargerThanTheCounter, Violation::OneTokenTwice, Setup::<4>::contended());
    finds(Rule::LargerThanTheCounter, Violation::OneTokenTwice, Setup::<5>::contended());
}

#[test]
fn half_of_the_nodes_as_a_quorum_repeats_a_token() {
    let setup = Setup::<4> { quorum: 2, ..Setup::contended() };
    fails(&[Violation::OneTokenTwice], "two of four nodes", &setup);
}

#[test]
fn restarted_node_that_ignores_its_time_repeats_a_token() {
    let setup = Setup::<3> { restarts: 1, ..Setup::contended() };
    finds(Rule::TimeAfterRestart, Violation::OneTokenTwice, setup);
}

#[test]
fn smaller_proposal_of_the_holder_repeats_a_token() {
    let begun =
        Setup::<3> { repeating: FIRST, repeats_grants: true, restarts: 1, ..Setup::begun() };
    let rule = Rule::LargerThanTheCounterForTheHolder;
    finds(rule, Violation::OneTokenTwice, begun);
}

#[test]
fn votes_for_two_proposals_repeat_a_token() {
    let repeats = Setup::<3> { repeating: FIRST, ..Setup::contended() };
    finds(Rule::VotesForOneProposal, Violation::OneTokenTwice, repeats);
}

#[test]
fn withdrawal_of_the_same_proposal_frees_a_held_lease() {
    finds(Rule::LargerProposal, Violation::HeldByTwo, on_time(repeats()));
}

#[test]
fn withdrawal_of_any_proposal_frees_a_held_lease() {
    finds(Rule::WithdrawalOfItsProposal, Violation::HeldByTwo, on_time(repeats()));
}

#[test]
#[ignore = "a minute: 2 million states"]
fn withdrawal_of_an_extended_vote_frees_a_held_lease() {
    let lasting = Setup { lasting: 1, skew: 0, ..repeats() };
    finds(Rule::HeartbeatRaisesToken, Violation::HeldByTwo, on_time(lasting));
}

#[test]
fn late_heartbeat_extends_beside_a_successor() {
    let regrants = Setup::<3> { repeating: FIRST, repeats_grants: true, ..Setup::begun() };
    let rule = Rule::NotExtendedWithLargerToken;
    finds(rule, Violation::ExtendedAfterASuccessor, regrants);
}

#[test]
fn restore_after_a_later_grant_extends_beside_it() {
    let begun = Setup::<3>::begun();
    finds(Rule::NotRestoredAfterAnother, Violation::ExtendedAfterASuccessor, begun);
}

#[test]
#[ignore = "minutes: 16 million states"]
fn restore_over_a_holder_grants_a_held_key() {
    let lasting = Setup::<3> { lasting: 2, claims: 3, restores: 2, ..Setup::begun() };
    finds(Rule::NotRestoredOverAHolder, Violation::HeldByTwo, on_time(lasting));
}

#[test]
fn restore_of_a_lost_counter_repeats_a_token() {
    let begun = Setup::<3> { restarts: 1, claims: 3, ..Setup::begun() };
    finds(Rule::RestoreWritesNoCounter, Violation::OneTokenTwice, begun);
}

#[test]
fn counted_restore_extends_beside_a_successor() {
    finds(Rule::RestoreDoesNotCount, Violation::ExtendedAfterASuccessor, Setup::<3>::begun());
}

#[test]
fn restore_while_earlier_votes_count_grants_a_held_key() {
    let setup = on_time(Setup::<3> { restarts: 1, ..Setup::begun() });
    finds(Rule::RestoredAfterVotes, Violation::HeldByTwo, setup);
}

#[test]
fn restore_after_a_release_occupies_a_free_key() {
    let setup = Setup::<3> { claims: 1, ..Setup::begun() };
    finds(Rule::ReleaseRaisesCounter, Violation::TakenAfterItsRelease, setup);
}

#[test]
fn release_of_a_lost_counter_repeats_a_token() {
    let begun = Setup::<3> { restarts: 1, claims: 3, ..Setup::begun() };
    finds(Rule::ReleaseKeepsTime, Violation::OneTokenTwice, begun);
}

#[test]
fn late_release_frees_a_held_lease() {
    let regrants = Setup::<3> { repeating: FIRST, repeats_grants: true, ..Setup::begun() };
    finds(Rule::ReleaseOfItsToken, Violation::HeldByTwo, on_time(regrants));
}

#[test]
fn restarted_node_that_votes_at_once_grants_a_held_key() {
    let setup = on_time(Setup::<3> { restarts: 1, ..Setup::begun() });
    finds(Rule::RejoinDelay, Violation::HeldByTwo, setup);
}

/// The node lost the counter of the successor's grant, so it accepts a restore of the former grant.
#[test]
fn wrong_clocks_extend_a_restored_lease_after_a_restart() {
    let begun = Setup::<3> { restarts: 1, ..Setup::begun() };
    fails(&[Violation::ExtendedAfterASuccessor], "restored after a restart", &begun);
}

/// Without this rule, the protocol would be simpler, and would break no other promise.
#[test]
fn trace_of_a_withdrawn_vote_keeps_the_former_holder_off_the_node() {
    let without = Some(Rule::WithdrawnVoteLeavesNoTrace);
    let begun = on_time(Setup::<3> { withdrawing: 2, without, ..Setup::begun() });
    assert!(!may_happen(&begun, &RESTORED_AFTER_A_WITHDRAWAL));
    sound("withdrawn with a trace, right clocks", &begun);
}

#[test]
fn late_claim_on_a_node_without_the_release_occupies_a_free_key() {
    let rule = Rule::ReleasedWhereAsked;
    finds(rule, Violation::TakenBesideItsRelease, majority_first::<3>());
    finds(rule, Violation::TakenBesideItsRelease, majority_first::<5>());
}

#[test]
fn restore_on_a_node_without_the_release_occupies_a_free_key() {
    let begun = Setup::<3> { majority_first: true, claims: 1, ..Setup::begun() };
    finds(Rule::ReleasedWhereRestored, Violation::TakenBesideItsRelease, begun);
    let begun = Setup::<5> { majority_first: true, claims: 1, ..Setup::begun() };
    finds(Rule::ReleasedWhereRestored, Violation::TakenBesideItsRelease, begun);
}

#[test]
fn repeated_claim_that_asks_other_nodes_occupies_a_free_key() {
    let repeats = Setup { repeating: FIRST, ..majority_first::<3>() };
    finds(Rule::RepeatedEverywhere, Violation::TakenBesideItsRelease, repeats);
}

#[test]
fn second_heartbeat_that_counts_earlier_answers_extends_beside_a_successor() {
    let spreads = Setup::<3> { majority_first: true, spreads: true, ..Setup::begun() };
    finds(Rule::SpreadCountsAnew, Violation::ExtendedAfterASuccessor, spreads);
}

#[test]
fn restore_after_a_forgotten_release_occupies_a_free_key() {
    let setup = Setup::<3> { withdrawing: 2, ..Setup::begun() };
    let rule = Rule::ReleaseRaisesTheFormerBound;
    finds(rule, Violation::TakenAfterItsRelease, setup);
}

#[test]
#[ignore = "a minute: 4 million states"]
fn withdrawn_second_vote_extends_beside_a_successor() {
    let rule = Rule::SecondVoteLeavesTrace;
    finds(rule, Violation::ExtendedAfterASuccessor, regrants_withdrawn());
}

#[test]
#[ignore = "a minute"]
fn repeated_claim_that_names_a_granted_proposal_extends_beside_a_successor() {
    let rule = Rule::NamesNoGrantedProposal;
    finds(rule, Violation::ExtendedAfterASuccessor, regrants_withdrawn());
}

#[test]
#[ignore = "a minute: 2 million states"]
fn withdrawn_larger_proposal_extends_beside_a_successor() {
    let rule = Rule::TraceOfSmallerToken;
    finds(rule, Violation::ExtendedAfterASuccessor, regrants_withdrawn());
}

#[test]
fn reservation_after_a_later_grant_occupies_a_free_key() {
    let reserves = Setup::<3> { reserves: true, ..Setup::begun() };
    let rule = Rule::NotReservedAfterAnother;
    finds(rule, Violation::ReservedAfterASuccessor, on_time(reserves));
}

#[test]
fn reservation_after_a_restart_reserves_a_held_key() {
    let reserves = Setup::<3> { reserves: true, restarts: 1, ..Setup::begun() };
    finds(Rule::ReservedAfterRejoinDelay, Violation::HeldByTwo, on_time(reserves));
}

fn regrants_withdrawn() -> Setup<3> {
    let begun = Setup { lasting: 2, withdrawing: 2, skew: 0, ..Setup::begun() };
    Setup { repeating: [false, true, false], repeats_grants: true, ..begun }
}

fn majority_first<const N: usize>() -> Setup<N> {
    Setup { lasting: 1, majority_first: true, skew: 0, ..Setup::contended() }
}

fn repeats() -> Setup<3> {
    Setup { withdrawing: 1, repeating: FIRST, ..Setup::contended() }
}
