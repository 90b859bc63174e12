//! Searches that find no broken promise. The full size takes minutes.

use super::setup::{Clocks, Role, Setup};
use super::violation::Violation;
use super::{ALL_BUT_ADOPTION, fails, keeps, sound};

#[test]
fn right_clocks_give_one_holder_at_a_time() {
    let right = Setup::contended(Clocks::Right);
    sound("right clocks", &Setup { evictions: 1, reserves: true, ..right });
    sound("two heartbeats", &right.with_beats([2, 1, 0]));
}

#[test]
fn wrong_clocks_extend_no_lease_beside_its_successor() {
    let wrong = Setup::contended(Clocks::Wrong).with_beats([2, 1, 0]);
    sound("wrong clocks", &Setup { evictions: 1, reserves: true, ..wrong });
}

#[test]
fn lost_data_extends_no_lease_beside_its_successor() {
    let (right, wrong) = (Setup::contended(Clocks::Right), Setup::contended(Clocks::Wrong));
    sound("two flushes", &Setup { flushes: 2, ..right });
    sound("a promotion", &Setup { promotions: 1, ..right });
    sound("two flushes, wrong clocks", &Setup { flushes: 2, ..wrong.with_beats([2, 1, 0]) });
}

#[test]
fn tokens_grow_after_lost_data() {
    let right = Setup { exact_tokens: true, ..Setup::contended(Clocks::Right) };
    let wrong = Setup { exact_tokens: true, ..Setup::contended(Clocks::Wrong) };
    sound("all tokens, a flush", &Setup { flushes: 1, ..right });
    sound("all tokens, a flush, wrong clocks", &Setup { flushes: 1, ..wrong });
}

#[test]
fn handed_over_lease_is_not_adopted_after_another() {
    let right = Setup::handed_over(Clocks::Right);
    let wrong = Setup::handed_over(Clocks::Wrong);
    sound("handed over", &right);
    sound("handed over, a flush", &Setup { flushes: 1, ..right });
    sound("handed over, a flush, wrong clocks", &Setup { flushes: 1, evictions: 1, ..wrong });
}

#[test]
fn batch_that_arrives_late_keeps_promises() {
    let right = Setup::batched(Clocks::Right);
    sound("batches", &right);
    sound("batches, wrong clocks", &Setup::batched(Clocks::Wrong));
    sound("one key in a batch", &one_key_in_a_batch(Clocks::Wrong));
}

/// The holder of the earlier grant cannot know of the promotion.
#[test]
fn promotion_with_wrong_clocks_extends_beside_a_successor() {
    let setup = Setup { promotions: 1, ..Setup::contended(Clocks::Wrong) };
    fails(Violation::ExtendedAfterASuccessor, "a promotion, wrong clocks", &setup);
}

#[test]
fn promotion_after_a_flush_extends_beside_a_successor() {
    let setup = Setup { promotions: 1, flushes: 1, ..Setup::contended(Clocks::Right) };
    fails(Violation::ExtendedAfterASuccessor, "a flush and a promotion", &setup);
}

/// No rule prevents this violation. So a key is held without a holder for one ttl after its last
/// claim or heartbeat arrives.
#[test]
fn late_heartbeat_prolongs_its_own_tenure_after_its_end() {
    let setup = Setup::contended(Clocks::Right);
    fails(Violation::ProlongedAfterItsEnd, "a late heartbeat", &setup);
}

#[test]
fn promotion_repeats_an_adoption_after_another() {
    let setup = Setup { promotions: 1, ..Setup::handed_over(Clocks::Right) };
    fails(Violation::AdoptedAfterAnother, "handed over, a promotion", &setup);
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_claims() {
    let three = Setup { claims: 3, ..Setup::contended(Clocks::Right) };
    sound("three claims", &three.with_beats([2, 1, 0]));
    sound("three claims, a flush", &Setup { flushes: 1, ..three });
    sound("three claims, an eviction", &Setup { evictions: 1, reserves: true, ..three });
    sound("three claims, a promotion", &Setup { promotions: 1, ..three });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_claims_with_wrong_clocks() {
    let three = Setup { claims: 3, ..Setup::contended(Clocks::Wrong).with_beats([2, 1, 0]) };
    sound("three claims, wrong clocks", &three);
    sound("three claims, a flush, wrong clocks", &Setup { flushes: 1, ..three });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_requests() {
    let right = Setup::contended(Clocks::Right);
    sound("three requests", &Setup { flushes: 1, ..right.with_requests(3) });
    let wrong = Setup::contended(Clocks::Wrong).with_beats([2, 1, 0]).with_requests(3);
    sound("three requests, wrong clocks", &Setup { flushes: 1, ..wrong });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_lost_data() {
    let right = Setup::contended(Clocks::Right).with_beats([2, 1, 0]);
    sound("two promotions", &Setup { promotions: 2, ..right });
    sound("an eviction, a promotion", &Setup { promotions: 1, evictions: 1, ..right });
    let exact = Setup { exact_tokens: true, ..Setup::contended(Clocks::Right) };
    sound("all tokens, a promotion", &Setup { promotions: 1, ..exact });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_nonces_each() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        let mut four = Setup { claims: 4, ..Setup::contended(clocks).with_requests(1) };
        sound("four claims, a flush", &Setup { flushes: 1, ..four.with_beats([1, 1, 0]) });
        four.roles[0].requests = 2;
        sound("four claims, one repeated", &four);
    }
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_hand_overs() {
    let right = Setup::handed_over(Clocks::Right);
    sound("handed over, an eviction", &Setup { evictions: 1, reserves: true, ..right });
    sound("handed over, two flushes", &Setup { flushes: 2, ..right.with_beats([2, 1, 0]) });
    keeps(&ALL_BUT_ADOPTION, "handed over, a promotion", &Setup { promotions: 1, ..right });
    let wrong = Setup::handed_over(Clocks::Wrong).with_requests(2).with_beats([2, 2, 1]);
    sound("handed over, wrong clocks", &Setup { flushes: 2, evictions: 1, ..wrong });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_a_chain_of_hand_overs() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        let twice = Setup::handed_over_twice(clocks);
        sound("handed over twice", &Setup { flushes: 1, ..twice });
        sound("handed over twice, an eviction", &Setup { evictions: 1, ..twice });
    }
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_batches() {
    sound("batches, a flush", &Setup { flushes: 1, ..Setup::batched(Clocks::Right) });
    let mut repeated = Setup::batched(Clocks::Wrong).with_beats([1, 0, 0]);
    for role in &mut repeated.roles[..2] {
        role.requests = 2;
    }
    sound("repeated batches, wrong clocks", &repeated);
    let shared = one_key_in_a_batch(Clocks::Right);
    sound("one key in a batch, a flush", &Setup { flushes: 1, ..shared });
}

fn one_key_in_a_batch(clocks: Clocks) -> Setup {
    let role = Role { requests: 2, batcher: 1, ..Role::default() };
    let alone = Role { requests: 1, ..Role::default() };
    let roles = [Role { beats: 1, ..role }, role, alone, alone];
    Setup { roles, claims: 3, ..Setup::contended(clocks) }
}
