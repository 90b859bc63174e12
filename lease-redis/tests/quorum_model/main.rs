//! A model of the quorum's protocol, searched through: every order in which requests arrive, are
//! late or lost, while leases run out and nodes restart.
//!
//! With wrong clocks, a lease may run out at any instant: what is found then rests on no clock,
//! and holds however long a process is paused. With right ones, a lease lasts for as long as its
//! holder believes in it, and then nobody else has it. Each rule that this rests on is taken
//! away once, and the search shows by which steps that goes wrong. Nothing is assumed about the
//! order of requests: each may be overtaken by any other.
//!
//! Not in it: handing over, evictions, reservations, and a second heartbeat of one lease. The
//! usual size takes seconds, for 3, 4 and 5 nodes. The full one takes minutes:
//! `cargo test -p lease-redis --test quorum_model -- --ignored --nocapture`
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "places are in range by construction, and a search tells how far it went"
)]

mod arrival;
mod code;
mod election;
mod next;
mod search;
mod setup;
mod state;
mod step;
mod violation;

use search::search;
use setup::{Clocks, Rule, Setup};
use violation::Violation;

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
    sound("a restart", &Setup::<4> { restarts: 1, skew: 0, ..Setup::contended() });
    sound("a restart", &Setup::<5> { restarts: 1, skew: 0, ..Setup::contended() });
}

#[test]
fn a_lease_that_runs_out_is_not_extended_beside_its_successor() {
    sound("put back", &Setup::<3> { skew: 1, put_backs: 2, ..Setup::begun() });
    sound("put back", &Setup::<4>::begun());
    sound("put back", &Setup::<5> { put_backs: 0, ..Setup::begun() });
}

#[test]
fn one_at_a_time_has_the_lease_where_clocks_are_right() {
    sound("right clocks", &on_time(Setup::<3> { skew: 1, ..Setup::begun() }));
    sound("right clocks", &on_time(Setup::<4> { put_backs: 0, ..Setup::begun() }));
    sound("a restart", &on_time(Setup::<3> { restarts: 1, ..Setup::begun() }));
}

#[test]
fn a_vote_that_is_taken_back_leaves_the_node_to_the_former_holder() {
    let begun = Setup::<3> { withdrawing: 2, ..Setup::begun() };
    sound("withdrawn", &begun);
    sound("withdrawn, right clocks", &on_time(begun));
}

#[test]
fn a_withdrawal_that_is_overtaken_takes_back_no_later_round() {
    sound("asked again, right clocks", &on_time(Setup { lasting: 0, ..asks_again() }));
}

#[test]
#[ignore = "minutes: the full size"]
fn the_full_size_of_three_nodes() {
    let contended = Setup::<3>::contended();
    sound("three claims", &Setup { claims: 3, skew: 2, ..contended });
    sound("three claims, a restart", &Setup { claims: 3, restarts: 1, ..contended });
    let begun = Setup::<3> { skew: 1, put_backs: 2, ..Setup::begun() };
    sound("three claims, put back", &Setup { claims: 3, ..begun });
    sound("a restart, right clocks", &on_time(Setup { restarts: 1, ..begun }));
    let withdrawn = Setup { withdrawing: 2, ..begun };
    sound("withdrawn", &withdrawn);
    sound("withdrawn, right clocks", &on_time(withdrawn));
    let restarts = Setup::<3> { withdrawing: 2, restarts: 1, ..Setup::begun() };
    sound("withdrawn, a restart, right clocks", &on_time(restarts));
}

#[test]
#[ignore = "minutes: the full size"]
fn the_full_size_of_a_claim_that_asks_again() {
    sound("asked again, right clocks", &on_time(asks_again()));
    sound("asked again, not extended", &Setup { lasting: 0, ..asks_again() });
    keeps(TOKENS, "asked again", &asks_again());
}

#[test]
#[ignore = "minutes: the full size"]
fn the_full_size_of_four_nodes() {
    let contended = Setup::<4>::contended();
    sound("three claims", &Setup { claims: 3, skew: 0, ..contended });
    sound("two restarts", &Setup { restarts: 2, skew: 2, ..contended });
    sound("put back", &Setup::<4> { skew: 1, put_backs: 2, ..Setup::begun() });
    sound("a restart, right clocks", &on_time(Setup::<4> { restarts: 1, ..Setup::begun() }));
    let lasting = Setup { lasting: 1, withdrawing: 1, skew: 0, put_backs: 1, ..contended };
    sound("from the beginning, right clocks", &on_time(lasting));
}

#[test]
#[ignore = "minutes: the full size"]
fn the_full_size_of_five_nodes() {
    sound("two claims", &Setup::<5> { skew: 2, ..Setup::contended() });
    sound("two claims, a restart", &Setup::<5> { restarts: 1, ..Setup::contended() });
    sound("put back", &Setup::<5>::begun());
    sound("put back, right clocks", &on_time(Setup::<5>::begun()));
}

#[test]
fn without_the_write_back_a_token_is_given_twice() {
    finds(Rule::WriteBack, Violation::OneTokenTwice, Setup::<3>::contended());
    finds(Rule::WriteBack, Violation::OneTokenTwice, Setup::<4>::contended());
    finds(Rule::WriteBack, Violation::OneTokenTwice, Setup::<5>::contended());
}

#[test]
fn without_its_guard_a_token_is_given_twice() {
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, Setup::<3>::contended());
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, Setup::<4>::contended());
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, Setup::<5>::contended());
}

#[test]
fn if_larger_votes_counted_a_token_would_be_given_twice() {
    finds(Rule::LargerVotesDoNotCount, Violation::OneTokenTwice, Setup::<3>::contended());
}

#[test]
fn half_of_the_nodes_are_not_enough() {
    let setup = Setup::<4> { quorum: 2, ..Setup::contended() };
    fails(&[Violation::OneTokenTwice], "two of four nodes", &setup);
}

#[test]
fn without_its_time_a_node_that_restarted_gives_a_token_twice() {
    let setup = Setup::<3> { restarts: 1, ..Setup::contended() };
    finds(Rule::TimeAfterRestart, Violation::OneTokenTwice, setup);
}

/// Two leases at once, but no token twice: it is put back after its grant, and the token of
/// another rests on nodes that had counted further by then.
#[test]
fn put_back_after_another_grant_a_lease_is_extended_beside_it() {
    let begun = Setup::<3>::begun();
    finds(Rule::NotPutBackAfterAnother, Violation::ExtendedAfterASuccessor, begun);
    let without = Setup { without: Some(Rule::NotPutBackAfterAnother), skew: 1, ..begun };
    keeps(TOKENS, "put back anywhere", &without);
}

/// It is in another's way, and no more: what is counted on is on a node that counted further.
#[test]
fn put_back_over_a_vote_no_lease_is_held_beside_another() {
    let without = Some(Rule::NotPutBackOverAHolder);
    let begun = Setup::<3> { without, skew: 1, ..Setup::begun() };
    sound("put back over anybody", &Setup { put_backs: 2, ..begun });
    sound("put back over anybody, right clocks", &on_time(begun));
}

#[test]
fn put_back_after_its_release_a_key_is_taken_for_nobody() {
    let setup = Setup::<3> { claims: 1, ..Setup::begun() };
    finds(Rule::NotPutBackAfterRelease, Violation::TakenAfterItsRelease, setup);
}

#[test]
fn if_being_put_back_counted_a_lease_would_be_extended_beside_another() {
    finds(Rule::PutBackDoesNotCount, Violation::ExtendedAfterASuccessor, Setup::<3>::begun());
}

#[test]
fn a_time_that_was_proposed_before_a_node_started_has_it_give_a_token_twice() {
    let setup = Setup::<3> { restarts: 1, ..Setup::contended() };
    finds(Rule::ProposedSinceTheStart, Violation::OneTokenTwice, setup);
}

#[test]
fn without_its_quarantine_a_node_that_restarted_grants_what_is_held() {
    let setup = on_time(Setup::<3> { restarts: 1, ..Setup::begun() });
    finds(Rule::Quarantine, Violation::HeldByTwo, setup);
}

#[test]
fn put_back_while_votes_of_before_a_restart_count_a_node_helps_to_grant_what_is_held() {
    let setup = on_time(Setup::<3> { restarts: 1, skew: 1, ..Setup::begun() });
    finds(Rule::PutBackAfterVotes, Violation::HeldByTwo, setup);
}

#[test]
fn a_withdrawal_of_any_round_frees_a_lease_that_is_held() {
    finds(Rule::WithdrawalOfItsRound, Violation::HeldByTwo, on_time(asks_again()));
}

#[test]
fn a_withdrawal_of_what_was_extended_frees_a_lease_that_is_held() {
    finds(Rule::ExtendedIsNotWithdrawn, Violation::HeldByTwo, on_time(asks_again()));
}

#[test]
#[ignore = "a minute"]
fn what_was_granted_before_an_earlier_vote_is_extended_beside_its_successor() {
    let setup = Setup::<3> { claims: 3, withdrawing: 3, ..Setup::begun() };
    finds(Rule::BeforeTheLastVote, Violation::ExtendedAfterASuccessor, setup);
}

/// The node had counted further, so its vote did not count; a heartbeat does.
#[test]
fn with_wrong_clocks_a_claim_that_comes_late_is_extended_beside_its_successor() {
    let lasting = Setup::<3> { lasting: 1, withdrawing: 1, skew: 0, ..Setup::contended() };
    fails(&[Violation::ExtendedAfterASuccessor], "a late claim", &lasting);
    keeps(TOKENS, "a late claim", &lasting);
}

/// Two claims, of which one may withdraw, ask again and be extended.
fn asks_again() -> Setup<3> {
    let contended = Setup::contended();
    Setup { lasting: 1, withdrawing: 1, asks_again: true, skew: 0, ..contended }
}

fn on_time<const N: usize>(setup: Setup<N>) -> Setup<N> {
    Setup { clocks: Clocks::Right, ..setup }
}

#[track_caller]
fn sound<const N: usize>(what: &str, setup: &Setup<N>) {
    keeps(&Violation::ALL, what, setup);
}

/// None of `promises` is broken.
#[track_caller]
fn keeps<const N: usize>(promises: &[Violation], what: &str, setup: &Setup<N>) {
    let found = search(setup, promises);

    println!("{N} nodes, {what}: {found}");
    assert!(found.violation.is_none(), "{N} nodes, {what}: {found}");
}

#[track_caller]
fn finds<const N: usize>(rule: Rule, violation: Violation, setup: Setup<N>) {
    fails(&[violation], &format!("without {rule:?}"), &Setup { without: Some(rule), ..setup });
}

#[track_caller]
fn fails<const N: usize>(promises: &[Violation], what: &str, setup: &Setup<N>) {
    let found = search(setup, promises);

    println!("{N} nodes, {what}: {found}");
    assert!(found.violation.is_some(), "{N} nodes, {what}: {found}");
}

const TOKENS: &[Violation] = &[Violation::OneTokenTwice, Violation::TokensOutOfOrder];
