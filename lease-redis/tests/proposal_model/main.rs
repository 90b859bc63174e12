//! A model of a quorum, and an exhaustive search of it. Requests arrive in every order, late or never, while
//! leases expire and nodes restart. See docs/design/017-redis-quorum-proposals.md.
//!
//! Start with `arrival`, then `claim`. With wrong clocks, a lease may expire at any instant, so promises that
//! are kept hold for pauses of any length. With right clocks, a lease lasts at least as long as its holder
//! relies on it. The tests leave out each rule of the protocol once, and the search prints the steps that
//! break a promise. The full size takes minutes:
//! `cargo test -p lease-redis --test proposal_model -- --ignored --nocapture`
//!
//! The model omits evictions. It has a second heartbeat of a lease only after the first one failed.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indices are in range by construction, and a search prints its size"
)]

mod arrival;
mod claim;
mod code;
mod controls;
mod freeing;
mod full_size;
mod next;
mod promises;
mod search;
mod setup;
mod state;
mod step;
mod violation;

use next::take_all;
use search::search;
use setup::{Clocks, Rule, Setup};
use state::State;
use violation::Violation;

fn on_time<const N: usize>(setup: Setup<N>) -> Setup<N> {
    Setup { clocks: Clocks::Right, ..setup }
}

#[track_caller]
fn sound<const N: usize>(what: &str, setup: &Setup<N>) {
    keeps(&Violation::ALL, what, setup);
}

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

fn may_happen<const N: usize>(setup: &Setup<N>, steps: &[&str]) -> bool {
    let mut states = State::first_ones(setup);
    for step in steps {
        let mut next = Vec::new();
        for state in states {
            let mut taken = Vec::new();
            take_all(setup, state, &mut taken);
            let these = taken.iter().filter(|taken| taken.step.to_string() == *step);
            next.extend(these.map(|taken| taken.state));
        }
        states = next;
    }
    !states.is_empty()
}

/// Node 3 votes for B without A's grant, and this vote is withdrawn. Then A's grant is restored on node 3.
const RESTORED_AFTER_A_WITHDRAWAL: [&str; 5] = [
    "B proposes 2",
    "B's claim reaches node 3",
    "B withdraws",
    "B's withdrawal reaches node 3",
    "A's restore reaches node 3",
];

/// As above, but B keeps its vote once, and proposes again.
const RESTORED_AFTER_TWO_PROPOSALS: [&str; 7] = [
    "B proposes 2",
    "B's claim reaches node 3",
    "B proposes 3 again",
    "B's claim reaches node 3",
    "B withdraws",
    "B's withdrawal reaches node 3",
    "A's restore reaches node 3",
];

const FIRST: [bool; 3] = [true, false, false];

const ALL: [bool; 3] = [true; 3];
