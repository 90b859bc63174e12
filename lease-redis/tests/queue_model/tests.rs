//! Searches that find the promises kept. The full size takes minutes.

use crate::setup::{Clocks, Setup, Skip};
use crate::sound;

#[test]
fn right_clocks_give_one_holder_at_a_time() {
    sound("right clocks", &two());
    sound("evictions, reservations", &Setup { evictions: 1, reserves: true, ..two() });
    sound("places time out early", &Setup { impatient: true, ..two() });
    sound("a kill", &Setup { kills: 1, ..two() });
    sound("plain claims", &two().with_plain([1, 1, 0]));
}

#[test]
fn wrong_clocks_extend_no_lease_beside_its_successor() {
    let wrong = Setup::of(2, Clocks::Wrong);
    sound("wrong clocks", &wrong);
    sound("wrong, evictions, reservations", &Setup { evictions: 1, reserves: true, ..wrong });
    sound("wrong, plain claims, kills", &Setup { kills: 1, ..wrong.with_plain([1, 1, 0]) });
    sound("wrong, two heartbeats", &wrong.with_beats([2, 1, 0]));
}

#[test]
fn lost_data_extends_no_lease_beside_its_successor() {
    let wrong = Setup::of(2, Clocks::Wrong);
    sound("two flushes", &Setup { flushes: 2, ..two() });
    sound("a promotion", &Setup { promotions: 1, ..two() });
    sound("a flush, plain", &Setup { flushes: 1, ..two().with_plain([1, 1, 0]) });
    sound("a promotion, plain", &Setup { promotions: 1, ..two().with_plain([1, 1, 0]) });
    sound("two flushes, wrong clocks", &Setup { flushes: 2, ..wrong });
}

#[test]
fn tokens_grow_after_lost_data() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        let exact = Setup { exact_tokens: true, ..Setup::of(2, clocks) };
        sound("all tokens, a flush", &Setup { flushes: 1, ..exact });
    }
}

#[test]
fn handed_over_lease_is_not_adopted_after_another() {
    for clocks in [Clocks::Right, Clocks::Wrong] {
        sound("handed over", &Setup::handed_over(clocks));
        sound("handed over, a flush", &Setup { flushes: 1, ..Setup::handed_over(clocks) });
    }
}

#[test]
fn skipped_waiter_keeps_promises() {
    for skip in [Skip::Removes, Skip::Passes] {
        sound("skip, a cut", &Setup { skip, cuts: 1, ..two() });
        sound("skip, a kill, a cut", &Setup { skip, kills: 1, cuts: 1, ..two().with_beats([0; 3]) });
        let three = Setup::of(3, Clocks::Right).with_requests([1, 2, 1]).with_beats([0; 3]);
        sound("skip, three", &Setup { skip, cuts: 1, ..three.with_leaves([false; 3]) });
    }
}

#[test]
fn three_clients_are_granted_in_order_of_arrival() {
    let three = Setup::of(3, Clocks::Right).with_requests([1, 1, 1]).with_beats([0; 3]);
    sound("three", &three);
    sound("three, two requests", &three.with_requests([1, 2, 1]).with_leaves([false; 3]));
    sound("three, wrong", &Setup { clocks: Clocks::Wrong, ..three.with_requests([1, 2, 1]) });
}

fn two() -> Setup {
    Setup::of(2, Clocks::Right)
}

#[test]
#[ignore = "explore"]
fn explore() {
    let w = std::env::var("W").unwrap();
    let three = Setup::of(3, Clocks::Right);
    let n = three.with_beats([0; 3]);
    match w.as_str() {
        "a" => sound("3c 2r", &n.with_requests([2; 3]).with_leaves([false; 3])),
        "b" => sound("3c 2r leaves", &n.with_requests([2; 3])),
        "c" => sound("3c 2r leaves beat", &three.with_requests([2; 3])),
        "d" => sound("3c 1r leaves beat", &three.with_requests([1; 3])),
        "e" => sound("2c 3r", &two().with_requests([3; 3])),
        "f" => sound("2c 3r 2b", &two().with_requests([3; 3]).with_beats([2, 1, 0])),
        "g" => sound("3c flush", &Setup { flushes: 1, ..n.with_requests([2; 3]) }),
        "h" => sound("3c prom", &Setup { promotions: 1, ..n.with_requests([1, 2, 1]) }),
        "i" => sound("3c skip", &Setup { skip: Skip::Passes, cuts: 1, kills: 1, ..n.with_requests([1, 2, 1]) }),
        "j" => sound("3c wrong", &Setup { clocks: Clocks::Wrong, ..three.with_requests([2; 3]) }),
        "k" => sound("2 proms", &Setup { promotions: 2, ..two() }),
        "l" => sound("wrong proms", &Setup { promotions: 1, ..Setup::of(2, Clocks::Wrong) }),
        "m" => sound("flush prom", &Setup { promotions: 1, flushes: 1, ..two() }),
        "n" => sound("prom evict", &Setup { promotions: 1, evictions: 1, ..two() }),
        "o" => sound("2 flush 2 beat wrong", &Setup { flushes: 2, ..Setup::of(2, Clocks::Wrong).with_beats([2, 1, 0]) }),
        _ => (),
    }
}
