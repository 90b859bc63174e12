//! The promises of the whole protocol, in the usual size.

use crate::setup::Setup;
use crate::{
    FIRST, RESTORED_AFTER_A_WITHDRAWAL, RESTORED_AFTER_TWO_PROPOSALS, TOKENS, keeps, may_happen,
    on_time, sound,
};

#[test]
fn tokens_are_unique_and_ordered() {
    sound("two claims", &Setup::<3> { skew: 2, ..Setup::contended() });
    sound("two claims", &Setup::<4>::contended());
    sound("two claims", &Setup::<5> { skew: 0, ..Setup::contended() });
    sound("three claims", &Setup::<3> { claims: 3, skew: 0, ..Setup::contended() });
}

#[test]
fn tokens_are_unique_and_ordered_after_a_restart() {
    sound("a restart", &Setup::<3> { restarts: 1, ..Setup::contended() });
    sound("a restart", &Setup::<4> { restarts: 1, ..Setup::contended() });
    sound("a restart", &Setup::<5> { restarts: 1, skew: 0, ..Setup::contended() });
}

#[test]
fn expired_lease_is_not_extended_beside_its_successor() {
    sound("restored", &Setup::<3> { restores: 2, ..Setup::begun() });
    sound("restored", &Setup::<4>::begun());
    sound("restored", &Setup::<5> { restores: 0, ..Setup::begun() });
}

#[test]
fn right_clocks_give_one_holder_at_a_time() {
    sound("right clocks", &on_time(Setup::<3>::begun()));
    sound("right clocks", &on_time(Setup::<4> { restores: 0, ..Setup::begun() }));
    sound("a restart", &on_time(Setup::<3> { restarts: 1, ..Setup::begun() }));
}

#[test]
fn late_withdrawal_affects_no_later_round() {
    let repeats = Setup::<3> { withdrawing: 1, repeating: FIRST, ..Setup::contended() };
    sound("repeated", &repeats);
    sound("repeated, right clocks", &on_time(repeats));
    let lasting = Setup { lasting: 1, skew: 0, ..repeats };
    sound("repeated, extended", &lasting);
    sound("repeated, extended, right clocks", &on_time(lasting));
}

#[test]
fn repeated_grant_has_a_larger_token() {
    let regrants = Setup::<3> { repeating: FIRST, repeats_grants: true, ..Setup::begun() };
    sound("granted again", &regrants);
    sound("granted again, right clocks", &on_time(Setup { skew: 0, ..regrants }));
}

#[test]
fn adopted_grant_has_one_holder() {
    let adopts = Setup::<3> { adopting: 1, ..Setup::begun() };
    sound("adopted", &adopts);
    sound("adopted, right clocks", &on_time(adopts));
    keeps(TOKENS, "adopted, a restart", &Setup { restarts: 1, ..adopts });
}

#[test]
fn reserved_key_is_not_granted() {
    let reserves = Setup::<3> { reserves: true, ..Setup::begun() };
    sound("reserved, right clocks", &on_time(reserves));
}

/// The search covers all majorities. A claim asks the other nodes at any time while it counts votes, or never.
#[test]
fn claim_that_asks_a_majority_first_keeps_all_promises() {
    let first = Setup::<3> { lasting: 1, majority_first: true, ..Setup::contended() };
    sound("a majority first", &first);
    sound("a majority first, right clocks", &on_time(first));
    let restores = Setup { restores: 1, skew: 0, ..first };
    sound("a majority first, restored, right clocks", &on_time(restores));
    let repeats = Setup { repeating: FIRST, skew: 0, ..first };
    sound("a majority first, repeated", &repeats);
    let five = Setup::<5> { lasting: 1, majority_first: true, skew: 0, ..Setup::contended() };
    sound("a majority first", &Setup { largest: 2, ..five });
}

/// The claim reached a bare majority, and the first heartbeat too few of its nodes.
#[test]
fn second_heartbeat_after_a_restore_extends_only_the_holder() {
    let begun = Setup::<3> { majority_first: true, spreads: true, ..Setup::begun() };
    sound("spread", &begun);
    sound("spread, right clocks", &on_time(begun));
    sound("spread, a restart, right clocks", &on_time(Setup { restarts: 1, skew: 0, ..begun }));
}

/// A trace of a withdrawn vote could prevent a restore of the former grant on the node.
#[test]
fn withdrawn_vote_leaves_the_node_to_the_former_holder() {
    let begun = Setup::<3> { withdrawing: 2, ..Setup::begun() };
    sound("withdrawn", &begun);
    sound("withdrawn, right clocks", &on_time(begun));
    assert!(may_happen(&on_time(begun), &RESTORED_AFTER_A_WITHDRAWAL));
}

/// B keeps its votes after its first proposal, and withdraws them after its second one.
#[test]
fn votes_for_two_proposals_leave_the_node_to_the_former_holder() {
    let repeating = [false, true, false];
    let begun = Setup::<3> { withdrawing: 2, repeating, skew: 0, ..Setup::begun() };
    sound("two proposals, withdrawn", &begun);
    sound("two proposals, withdrawn, right clocks", &on_time(begun));
    assert!(may_happen(&on_time(begun), &RESTORED_AFTER_TWO_PROPOSALS));
}
