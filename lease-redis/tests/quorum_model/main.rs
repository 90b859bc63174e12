//! A model of the quorum's protocol, and an exhaustive search of it: requests arrive in every order, late or
//! never, while leases expire and nodes restart.
//!
//! With wrong clocks, a lease may expire at any instant. Promises confirmed there depend on no clock, and
//! hold for pauses of any length. With right clocks, a lease lasts at least as long as its holder relies on
//! it, and no other lessee holds the key meanwhile. The tests leave out each rule of the protocol once, and
//! the search prints the steps that break a promise. The order of requests is arbitrary: any request may
//! overtake any other.
//!
//! The model omits hand-overs, evictions, reservations, and a second heartbeat of one lease. The usual size
//! takes seconds, for 3, 4 and 5 nodes. The full size takes minutes:
//! `cargo test -p lease-redis --test quorum_model -- --ignored --nocapture`
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indices are in range by construction, and a search prints its size"
)]

mod arrival;
mod claim;
mod code;
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
fn expired_lease_is_not_extended_beside_its_successor() {
    sound("restored", &Setup::<3> { skew: 1, restores: 2, ..Setup::begun() });
    sound("restored", &Setup::<4>::begun());
    sound("restored", &Setup::<5> { restores: 0, ..Setup::begun() });
}

#[test]
fn right_clocks_give_one_holder_at_a_time() {
    sound("right clocks", &on_time(Setup::<3> { skew: 1, ..Setup::begun() }));
    sound("right clocks", &on_time(Setup::<4> { restores: 0, ..Setup::begun() }));
    sound("a restart", &on_time(Setup::<3> { restarts: 1, ..Setup::begun() }));
}

#[test]
fn withdrawn_vote_leaves_the_node_to_the_former_holder() {
    let begun = Setup::<3> { withdrawing: 2, ..Setup::begun() };
    sound("withdrawn", &begun);
    sound("withdrawn, right clocks", &on_time(begun));
}

#[test]
fn late_withdrawal_affects_no_later_round() {
    sound("repeated, right clocks", &on_time(Setup { lasting: 0, ..repeats() }));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_nodes() {
    let contended = Setup::<3>::contended();
    sound("three claims", &Setup { claims: 3, skew: 2, ..contended });
    sound("three claims, a restart", &Setup { claims: 3, restarts: 1, ..contended });
    let begun = Setup::<3> { skew: 1, restores: 2, ..Setup::begun() };
    sound("three claims, restored", &Setup { claims: 3, ..begun });
    sound("a restart, right clocks", &on_time(Setup { restarts: 1, ..begun }));
    let withdrawn = Setup { withdrawing: 2, ..begun };
    sound("withdrawn", &withdrawn);
    sound("withdrawn, right clocks", &on_time(withdrawn));
    let restarts = Setup::<3> { withdrawing: 2, restarts: 1, ..Setup::begun() };
    sound("withdrawn, a restart, right clocks", &on_time(restarts));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_repeated_claim() {
    sound("repeated, right clocks", &on_time(repeats()));
    sound("repeated, not extended", &Setup { lasting: 0, ..repeats() });
    keeps(TOKENS, "repeated", &repeats());
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_four_nodes() {
    let contended = Setup::<4>::contended();
    sound("three claims", &Setup { claims: 3, skew: 0, ..contended });
    sound("two restarts", &Setup { restarts: 2, skew: 2, ..contended });
    sound("restored", &Setup::<4> { skew: 1, restores: 2, ..Setup::begun() });
    sound("a restart, right clocks", &on_time(Setup::<4> { restarts: 1, ..Setup::begun() }));
    let lasting = Setup { lasting: 1, withdrawing: 1, skew: 0, restores: 1, ..contended };
    sound("from the beginning, right clocks", &on_time(lasting));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_five_nodes() {
    sound("two claims", &Setup::<5> { skew: 2, ..Setup::contended() });
    sound("two claims, a restart", &Setup::<5> { restarts: 1, ..Setup::contended() });
    sound("restored", &Setup::<5>::begun());
    sound("restored, right clocks", &on_time(Setup::<5>::begun()));
}

#[test]
fn missing_write_back_repeats_a_token() {
    finds(Rule::WriteBack, Violation::OneTokenTwice, Setup::<3>::contended());
    finds(Rule::WriteBack, Violation::OneTokenTwice, Setup::<4>::contended());
    finds(Rule::WriteBack, Violation::OneTokenTwice, Setup::<5>::contended());
}

#[test]
fn unguarded_write_back_repeats_a_token() {
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, Setup::<3>::contended());
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, Setup::<4>::contended());
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, Setup::<5>::contended());
}

#[test]
fn counted_larger_vote_repeats_a_token() {
    finds(Rule::LargerVotesDoNotCount, Violation::OneTokenTwice, Setup::<3>::contended());
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

/// The grant is restored after a later grant. Two lessees hold the key, but no token repeats: the later
/// token is on nodes that had counted further.
#[test]
fn restore_after_a_later_grant_extends_beside_it() {
    let begun = Setup::<3>::begun();
    finds(Rule::NotRestoredAfterAnother, Violation::ExtendedAfterASuccessor, begun);
    let without = Setup { without: Some(Rule::NotRestoredAfterAnother), skew: 1, ..begun };
    keeps(TOKENS, "restored anywhere", &without);
}

/// The restored grant blocks another claim, but breaks no promise: each node whose vote counts has
/// counted further.
#[test]
fn restore_over_another_vote_breaks_no_promise() {
    let without = Some(Rule::NotRestoredOverAHolder);
    let begun = Setup::<3> { without, skew: 1, ..Setup::begun() };
    sound("restored over any holder", &Setup { restores: 2, ..begun });
    sound("restored over any holder, right clocks", &on_time(begun));
}

#[test]
fn restore_after_a_release_occupies_a_free_key() {
    let setup = Setup::<3> { claims: 1, ..Setup::begun() };
    finds(Rule::NotRestoredAfterRelease, Violation::TakenAfterItsRelease, setup);
}

#[test]
fn counted_restore_extends_beside_a_successor() {
    finds(Rule::RestoreDoesNotCount, Violation::ExtendedAfterASuccessor, Setup::<3>::begun());
}

#[test]
fn time_proposed_before_a_restart_repeats_a_token() {
    let setup = Setup::<3> { restarts: 1, ..Setup::contended() };
    finds(Rule::ProposedSinceTheStart, Violation::OneTokenTwice, setup);
}

#[test]
fn restarted_node_that_votes_at_once_grants_a_held_key() {
    let setup = on_time(Setup::<3> { restarts: 1, ..Setup::begun() });
    finds(Rule::RejoinDelay, Violation::HeldByTwo, setup);
}

#[test]
fn restore_while_earlier_votes_count_grants_a_held_key() {
    let setup = on_time(Setup::<3> { restarts: 1, skew: 1, ..Setup::begun() });
    finds(Rule::RestoredAfterVotes, Violation::HeldByTwo, setup);
}

#[test]
fn withdrawal_of_any_round_frees_a_held_lease() {
    finds(Rule::WithdrawalOfItsRound, Violation::HeldByTwo, on_time(repeats()));
}

#[test]
fn withdrawal_of_an_extended_vote_frees_a_held_lease() {
    finds(Rule::ExtendedIsNotWithdrawn, Violation::HeldByTwo, on_time(repeats()));
}

#[test]
#[ignore = "a minute"]
fn grant_before_an_earlier_vote_extends_beside_its_successor() {
    let setup = Setup::<3> { claims: 3, withdrawing: 3, ..Setup::begun() };
    finds(Rule::BeforeTheLastVote, Violation::ExtendedAfterASuccessor, setup);
}

/// The node had counted further, so its vote did not count. But its heartbeat counts.
#[test]
fn wrong_clocks_extend_a_late_claim_beside_its_successor() {
    let lasting = Setup::<3> { lasting: 1, withdrawing: 1, skew: 0, ..Setup::contended() };
    fails(&[Violation::ExtendedAfterASuccessor], "a late claim", &lasting);
    keeps(TOKENS, "a late claim", &lasting);
    sound("a late claim, right clocks", &on_time(lasting));
}

/// Two claims. One may withdraw, be repeated and be extended.
fn repeats() -> Setup<3> {
    let contended = Setup::contended();
    Setup { lasting: 1, withdrawing: 1, repeats: true, skew: 0, ..contended }
}

fn on_time<const N: usize>(setup: Setup<N>) -> Setup<N> {
    Setup { clocks: Clocks::Right, ..setup }
}

#[track_caller]
fn sound<const N: usize>(what: &str, setup: &Setup<N>) {
    keeps(&Violation::ALL, what, setup);
}

/// Asserts that no promise in `promises` is broken.
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
