//! Searches that find no broken promise. The full size takes minutes.

use crate::setup::{Clocks, Setup, Skip};
use crate::violation::Violation;
use crate::{fails, sound};

#[test]
fn right_clocks_give_one_holder_at_a_time() {
    sound("right clocks", &two());
    sound("places that time out early", &Setup { impatient: true, ..two() });
    sound("a kill", &Setup { kills: 1, ..two() });
    sound("plain claims", &two().with_plain([1, 1, 0]));
    let operated = Setup { evictions: 1, reserves: true, ..two().with_requests([2, 1, 0]) };
    sound("evictions, reservations", &operated);
}

#[test]
fn wrong_clocks_extend_no_lease_beside_its_successor() {
    let wrong = Setup::of(2, Clocks::Wrong);
    sound("wrong clocks, two heartbeats", &wrong.with_beats([2, 1, 0]));
    let operated = Setup { evictions: 1, reserves: true, ..wrong };
    sound("wrong clocks, evictions, reservations", &operated);
    let plain = Setup { kills: 1, ..wrong.with_plain([1, 1, 0]) };
    sound("wrong clocks, plain claims, kills", &plain);
}

#[test]
fn lost_data_extends_no_lease_beside_its_successor() {
    sound("two flushes", &Setup { flushes: 2, ..two() });
    sound("a promotion", &Setup { promotions: 1, ..two() });
    let plain = two().with_plain([1, 1, 0]);
    sound("plain claims, a flush", &Setup { flushes: 1, ..plain });
    let wrong = Setup { clocks: Clocks::Wrong, flushes: 2, ..two() };
    sound("two flushes, wrong clocks", &wrong);
}

#[test]
fn tokens_grow_after_lost_data() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        let setup = Setup::of(2, clocks).with_requests([2, 1, 0]);
        sound("all tokens, a flush", &Setup { exact_tokens: true, flushes: 1, ..setup });
    }
}

#[test]
fn handed_over_lease_is_not_adopted_after_another() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        let setup = Setup { flushes: 1, ..Setup::handed_over(clocks) };
        sound("handed over, a flush", &setup);
    }
}

#[test]
fn skipped_waiter_keeps_promises() {
    for skip in [Skip::Removes, Skip::Passes] {
        let silent = two().with_beats([0; 3]);
        sound("skip, a kill, a cut", &Setup { skip, kills: 1, cuts: 1, ..silent });
        let three = three().with_requests([1, 2, 1]).with_leaves([false; 3]);
        sound("three clients, skip, a cut", &Setup { skip, cuts: 1, ..three });
    }
}

#[test]
fn three_clients_are_granted_in_order_of_arrival() {
    sound("three clients", &three().with_requests([2; 3]).with_leaves([false; 3]));
    sound("three clients, a heartbeat", &three().with_beats([1, 0, 0]));
    let wrong = Setup { clocks: Clocks::Wrong, ..three().with_requests([1, 2, 1]) };
    sound("three clients, wrong clocks", &wrong);
}

/// The holder of the earlier grant cannot know of the promotion. Without a queue, the result is the same.
#[test]
fn promotion_with_wrong_clocks_extends_beside_a_successor() {
    let setup = Setup { promotions: 1, ..Setup::of(2, Clocks::Wrong) };
    fails(Violation::ExtendedAfterASuccessor, "a promotion, wrong clocks", &setup);
}

#[test]
fn promotion_after_a_flush_extends_beside_a_successor() {
    let setup = Setup { promotions: 1, flushes: 1, ..two() };
    fails(Violation::ExtendedAfterASuccessor, "a flush and a promotion", &setup);
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_clients() {
    let setup = Setup::of(3, Clocks::Right);
    sound("three clients, two requests, a heartbeat", &setup);
    sound("three clients, wrong clocks", &Setup { clocks: Clocks::Wrong, ..setup });
    let setup = setup.with_requests([2, 1, 1]);
    sound("three clients, evictions", &Setup { evictions: 1, reserves: true, ..setup });
    sound("three clients, kills, early", &Setup { kills: 2, impatient: true, ..setup });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_clients_with_lost_data() {
    let setup = three().with_requests([2; 3]);
    sound("three clients, a flush", &Setup { flushes: 1, ..setup });
    let setup = three().with_requests([1, 2, 1]);
    sound("three clients, a promotion", &Setup { promotions: 1, ..setup });
    let setup = three().with_beats([1, 0, 0]);
    sound("three clients, a heartbeat, a promotion", &Setup { promotions: 1, ..setup });
    sound("three clients, a heartbeat, two flushes", &Setup { flushes: 2, ..setup });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_plain_claims() {
    let setup = Setup::of(2, Clocks::Right).with_requests([3, 2, 2]).with_plain([1; 3]);
    sound("plain claims, three requests", &setup);
    sound("plain claims, a promotion", &Setup { promotions: 1, ..setup.with_requests([2; 3]) });
    let three = three().with_requests([2; 3]).with_plain([1; 3]);
    sound("three clients, plain claims", &three);
    sound("three clients, plain claims, wrong clocks", &Setup { clocks: Clocks::Wrong, ..three });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_three_requests() {
    sound("three requests", &two().with_requests([3; 3]));
    let wrong = Setup::of(2, Clocks::Wrong).with_requests([3; 3]).with_beats([2, 1, 0]);
    sound("three requests, wrong clocks", &wrong);
    let fewer = two().with_requests([3, 2, 0]);
    sound("three requests, a flush", &Setup { flushes: 1, ..fewer });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_lost_data() {
    sound("two promotions", &Setup { promotions: 2, ..two() });
    sound("an eviction, a promotion", &Setup { promotions: 1, evictions: 1, ..two() });
    let exact = Setup { exact_tokens: true, ..two().with_requests([2, 1, 0]) };
    sound("all tokens, a promotion", &Setup { promotions: 1, ..exact });
    sound("all tokens, two flushes", &Setup { flushes: 2, ..exact });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_skipped_waiters() {
    for skip in [Skip::Removes, Skip::Passes] {
        sound("skip, a kill, a cut, a heartbeat", &Setup { skip, kills: 1, cuts: 1, ..two() });
        let setup = Setup { skip, kills: 1, cuts: 2, ..three().with_requests([1, 2, 1]) };
        sound("three clients, skip, a kill, two cuts", &setup);
        sound("three clients, skip, a flush", &Setup { kills: 0, cuts: 1, flushes: 1, ..setup });
    }
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_hand_overs() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        let setup = Setup::handed_over(clocks).with_requests([2, 1, 2]).with_beats([1, 1, 0]);
        sound("handed over, an eviction", &Setup { evictions: 1, reserves: true, ..setup });
        sound("handed over, two flushes", &Setup { flushes: 2, ..Setup::handed_over(clocks) });
    }
}

fn two() -> Setup {
    Setup::of(2, Clocks::Right)
}

fn three() -> Setup {
    Setup::of(3, Clocks::Right).with_requests([1; 3]).with_beats([0; 3])
}
