//! Searches that find no broken promise. The full size takes minutes.

use super::setup::{FirstLease, Setup};
use super::sound;

#[test]
fn workers_that_start_again_know_each_other() {
    sound("restarts", Setup { crashes: 1, restarts: 1, hand_overs: 1, ..Setup::of(2) });
}

#[test]
fn lost_sessions_and_removed_rows_leave_no_orphan() {
    let lost = Setup { lost_sessions: 1, removed_rows: 1, ..Setup::of(2) };
    sound("lost sessions, removed rows", lost);
}

#[test]
fn unanswered_claims_leave_no_orphan() {
    let unclear = Setup { unclear_claims: 1, hand_overs: 1, ..Setup::of(2) };
    sound("unanswered claims", unclear);
    sound(
        "leases of the earlier mode",
        Setup { first_lease: FirstLease::OfEarlierMode, ..unclear },
    );
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_workers() {
    sound("mass deaths", Setup { crashes: 2, removed_rows: 1, ..Setup::of(3) });
    sound("three workers, restarts", Setup { crashes: 1, restarts: 1, ..Setup::of(3) });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_workers() {
    let all = Setup { crashes: 1, restarts: 1, lost_sessions: 1, removed_rows: 1, ..Setup::of(2) };
    sound("all faults of sessions", Setup { hand_overs: 1, ..all });
    sound("all faults", Setup { unclear_claims: 1, ..all });
}
