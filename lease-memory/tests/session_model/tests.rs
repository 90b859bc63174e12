//! Searches that find no broken promise. The full size takes minutes.

use super::setup::{Clocks, Setup};
use super::state::Violation;
use super::{keeps, sound};

const WITHOUT_CLOCKS: [Violation; 3] =
    [Violation::Orphaned, Violation::TokenNotLarger, Violation::CheckpointNotFenced];

#[test]
fn right_clocks_give_one_holder_and_no_orphan() {
    sound("contended", &Setup::contended());
    sound("with heartbeats", &Setup { beats: 1, sessions: [2, 1, 0], ..Setup::contended() });
}

#[test]
fn wrong_clocks_leave_no_orphan_and_fence_checkpoints() {
    let wrong = Setup { clocks: Clocks::Wrong, ..Setup::contended() };
    keeps(&WITHOUT_CLOCKS, "wrong clocks", &wrong);
}

#[test]
fn two_shards_of_one_session_have_one_holder_each() {
    let two = Setup { shards: 2, sessions: [2, 1, 0], checkpoints: false, ..Setup::contended() };
    sound("two shards", &two);
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_workers() {
    let three = Setup { claims: [3, 3, 0], ..Setup::contended() };
    sound("three claims", &three);
    sound("three claims, three sessions", &Setup { sessions: [3, 3, 0], ..three });
    sound("heartbeats", &Setup { beats: 1, ..Setup::contended() });
    let wrong = Setup { clocks: Clocks::Wrong, beats: 1, ..Setup::contended() };
    keeps(&WITHOUT_CLOCKS, "heartbeats, wrong clocks", &wrong);
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_workers() {
    let three = Setup { workers: 3, sessions: [2, 1, 1], claims: [2, 1, 1], ..Setup::contended() };
    sound("three workers", &three);
    sound("three workers, two sessions each", &Setup { sessions: [2; 3], claims: [2; 3], ..three });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_shards() {
    let two = Setup { shards: 2, ..Setup::contended() };
    sound("two shards, two sessions each", &two);
    let three = Setup { claims: [3, 2, 0], checkpoints: false, ..two };
    sound("two shards, three claims", &three);
}
