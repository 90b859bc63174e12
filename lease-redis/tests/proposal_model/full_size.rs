//! The promises of the whole protocol, in the full size.

use crate::setup::Setup;
use crate::violation::Violation;
use crate::{ALL, FIRST, TOKENS, keeps, on_time, sound};

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_contended_claims() {
    let contended = Setup::<3> { claims: 3, skew: 2, largest: 5, ..Setup::contended() };
    sound("three claims", &contended);
    sound("three claims, two restarts", &Setup { restarts: 2, ..contended });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_repeated_claims() {
    let both = Setup::<3> { withdrawing: 2, repeating: ALL, skew: 0, ..Setup::contended() };
    sound("two claims repeated", &both);
    sound("two claims repeated, right clocks", &on_time(both));
    sound("a claim repeated, three claims", &Setup { claims: 3, repeating: FIRST, ..both });
    sound("two claims repeated, a restart", &Setup { restarts: 1, ..both });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_restored_lease() {
    let begun = Setup::<3> { restores: 2, largest: 4, ..Setup::begun() };
    sound("a restart, right clocks", &on_time(Setup { restarts: 1, ..begun }));
    sound("three claims", &Setup { claims: 3, ..begun });
    let restarts = Setup { claims: 3, largest: 3, restarts: 1, ..begun };
    keeps(TOKENS, "three claims, a restart", &restarts);
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_withdrawn_claim() {
    let begun = Setup::<3> { lasting: 2, withdrawing: 2, restores: 2, ..Setup::begun() };
    sound("withdrawn", &begun);
    sound("withdrawn, right clocks", &on_time(begun));
    let restarts = Setup { lasting: 1, restores: 1, restarts: 1, ..begun };
    sound("withdrawn, a restart, right clocks", &on_time(restarts));
    let repeated = Setup { repeating: [false, true, false], lasting: 1, skew: 0, ..begun };
    sound("withdrawn, repeated", &repeated);
    sound("withdrawn, repeated, right clocks", &on_time(repeated));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_grant_that_is_granted_again() {
    let regrants = Setup::<3> { repeating: FIRST, repeats_grants: true, ..Setup::begun() };
    let larger = Setup { restores: 2, largest: 4, ..regrants };
    sound("granted again", &larger);
    sound("granted again, right clocks", &on_time(larger));
    let restarts = Setup { restarts: 1, skew: 0, ..regrants };
    keeps(TOKENS, "granted again, a restart", &restarts);
    sound("granted again, a restart, right clocks", &on_time(restarts));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_an_adopted_grant() {
    let adopts = Setup::<3> { claims: 3, adopting: 1, ..Setup::begun() };
    sound("adopted beside a claim", &adopts);
    sound("adopted beside a claim, right clocks", &on_time(adopts));
    let two = Setup { adopting: 2, lasting: 2, withdrawing: 2, ..adopts };
    sound("two adopt", &two);
    sound("two adopt, right clocks", &on_time(two));
    sound("adopted, a restart, right clocks", &on_time(Setup { restarts: 1, claims: 2, ..two }));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_reservation() {
    let reserves = Setup::<3> { reserves: true, restores: 2, ..Setup::begun() };
    let restarts = on_time(Setup { restarts: 1, ..reserves });
    // A restarted node has lost the counter of the successor.
    keeps(&[Violation::HeldByTwo], "reserved, a restart, right clocks", &restarts);
    sound("reserved, three claims, right clocks", &on_time(Setup { claims: 3, ..reserves }));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_four_nodes() {
    let contended = Setup::<4> { claims: 3, ..Setup::contended() };
    sound("three claims, a restart", &Setup { restarts: 1, ..contended });
    let begun = Setup::<4> { restores: 2, ..Setup::begun() };
    sound("restored", &begun);
    sound("restored, right clocks", &on_time(begun));
    sound("a restart, right clocks", &on_time(Setup { restarts: 1, restores: 1, ..begun }));
    let repeated = Setup::<4> { withdrawing: 1, repeating: FIRST, skew: 0, ..Setup::contended() };
    sound("repeated, extended, right clocks", &on_time(Setup { lasting: 1, ..repeated }));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_five_nodes() {
    let contended = Setup::<5> { claims: 3, ..Setup::contended() };
    sound("three claims", &contended);
    sound("two claims, two restarts", &Setup { claims: 2, restarts: 2, ..contended });
    let begun = Setup::<5>::begun();
    sound("restored", &begun);
    sound("restored, right clocks", &on_time(begun));
    let repeated = Setup::<5> { withdrawing: 1, repeating: FIRST, skew: 0, ..Setup::contended() };
    sound("repeated", &repeated);
    sound("a restart, right clocks", &on_time(Setup { restarts: 1, restores: 1, ..begun }));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_majority_that_is_asked_first() {
    let first = Setup::<3> { lasting: 2, majority_first: true, ..Setup::contended() };
    sound("two ask a majority first", &first);
    sound("two ask a majority first, right clocks", &on_time(first));
    let restores = Setup { restores: 1, skew: 0, ..first };
    sound("two ask a majority first, restored", &restores);
    sound("two ask a majority first, restored, right clocks", &on_time(restores));
    let all = Setup { lasting: 1, withdrawing: 1, repeating: FIRST, restarts: 1, ..restores };
    sound("a majority first, repeated, a restart, right clocks", &on_time(all));
    let five = Setup::<5> { lasting: 1, majority_first: true, skew: 0, ..Setup::contended() };
    sound("a majority first", &five);
    let spread = Setup::<5> { majority_first: true, spreads: true, skew: 0, ..Setup::begun() };
    sound("spread", &spread);
    sound("spread, right clocks", &on_time(spread));
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_all_faults_together() {
    let begun = Setup::<3> { withdrawing: 2, restarts: 1, skew: 0, ..Setup::begun() };
    let all = Setup { repeating: [false, true, false], ..begun };
    sound("all faults, right clocks", &on_time(all));
    keeps(TOKENS, "all faults", &all);
    keeps(TOKENS, "all faults, granted again", &Setup { repeats_grants: true, ..all });
}
