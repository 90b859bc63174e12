//! Searches that find no broken promise. The full size takes minutes.

use super::setup::{FirstLease, Setup};
use super::sound;

#[test]
fn workers_that_start_again_know_each_other() {
    sound("restarts", Setup { crashes: 1, restarts: 1, ..Setup::of(2) });
}

#[test]
fn lost_sessions_leave_no_orphan() {
    sound("lost sessions", Setup { lost_sessions: 1, ..Setup::of(2) });
}

#[test]
fn removed_rows_leave_no_orphan_and_hide_no_notice() {
    sound("removed rows", Setup { removed_rows: 1, ..Setup::of(2) });
}

#[test]
fn unanswered_claims_leave_no_orphan() {
    sound("unanswered claims", Setup { unclear_claims: 1, ..Setup::of(2) });
}

#[test]
fn leases_of_the_earlier_mode_are_seen() {
    let first_lease = FirstLease::OfEarlierMode;
    sound("first lease", Setup { first_lease, ..Setup::of(2) });
    sound("later lease", Setup { claims_of_earlier_mode: 1, ..Setup::of(2) });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_workers() {
    sound("removed rows", Setup { crashes: 1, removed_rows: 1, ..Setup::of(3) });
    sound("mass deaths", Setup { crashes: 2, ..Setup::of(3) });
    sound("restarts of three", Setup { crashes: 1, restarts: 1, ..Setup::of(3) });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_workers() {
    let restarts = Setup { crashes: 1, restarts: 1, ..Setup::of(2) };
    sound("restarts, hand-overs", Setup { hand_overs: 1, ..restarts });
    sound("restarts, lost sessions", Setup { lost_sessions: 1, ..restarts });
    sound("restarts, removed rows", Setup { removed_rows: 1, ..restarts });
    sound(
        "lost sessions, removed rows",
        Setup { lost_sessions: 1, removed_rows: 1, ..Setup::of(2) },
    );
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_unanswered_requests() {
    let unanswered = Setup { unclear_claims: 1, hand_overs: 1, ..Setup::of(2) };
    let removed = Setup { removed_rows: 1, hand_overs: 1, ..Setup::of(2) };
    sound("removed rows, unanswered counts", Setup { unanswered_counts: 1, ..removed });
    sound("removed rows, unanswered claims", Setup { removed_rows: 1, ..unanswered });
    sound("leases of the earlier mode", Setup { claims_of_earlier_mode: 1, ..unanswered });
}
