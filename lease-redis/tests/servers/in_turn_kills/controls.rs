//! Negative controls: the judge finds long gaps, grants to dead waiters, and a wrong order.

use std::collections::BTreeMap;

use lease_core::store::micros_since_1970;

use super::fleet::{Fleet, Hold};
use super::judge::{Commands, Judged};
use crate::setting::{LEASE, eventually, servers};

/// The processes start at different times.
#[tokio::test]
async fn reports_of_all_processes_are_on_the_wall_clock() {
    let Some([server]) = servers() else { return };
    let start = micros_since_1970();
    let mut fleet = Fleet::start(&server, 2);
    let until_held_by = async |fleet: &Fleet, count| {
        eventually("processes hold the key", async || (fleet.holders() == count).then_some(()))
            .await;
    };
    until_held_by(&fleet, 2).await;
    fleet.replace(1).await;
    until_held_by(&fleet, 3).await;
    fleet.stop().await;

    let end = micros_since_1970();
    for hold in fleet.holds().into_values() {
        let released = hold.released.unwrap_or(end);
        assert!(start <= hold.obtained && hold.obtained <= released && released <= end, "{hold:?}");
    }
}

/// Times are in milliseconds.
#[derive(Default)]
struct Story {
    commands: Commands,
    holds: BTreeMap<u64, Hold>,
}

impl Story {
    fn joins(&mut self, at: u64, name: char) {
        self.commands
            .note(at * 1_000, &format!("lua \"RPUSH\" \"{LEASE}:queue\" \"{}\"", nonce(name)));
    }

    fn grants(&mut self, at: u64, name: char, token: u64) {
        let (at, nonce) = (at * 1_000, nonce(name));
        let set = format!("lua \"SET\" \"{LEASE}\" \"{nonce}hq1 0 {token} x\" \"PX\" \"2000\"");
        self.commands.note(at, &set);
        let message = format!("lua \"PUBLISH\" \"lease:grants:c\" \"{nonce} 1 {token} {LEASE}\"");
        self.commands.note(at, &message);
    }

    fn holds(&mut self, token: u64, obtained: u64, released: Option<u64>) {
        let (obtained, released) = (obtained * 1_000, released.map(|at| at * 1_000));
        self.holds.insert(token, Hold { obtained, released });
    }

    fn judge(&self) -> Judged {
        self.commands.judge(&self.holds)
    }
}

fn nonce(name: char) -> String {
    name.to_string().repeat(32)
}

/// The first process holds the key from 1 s, and is killed. The second process is granted the key at
/// `second`, if given, and reports nothing. The third process obtains the key at `third`.
fn killed_holder(second: Option<u64>, third: u64) -> Judged {
    let mut story = Story::default();
    for name in ['a', 'b', 'c'] {
        story.joins(500, name);
    }
    story.grants(1_000, 'a', 1);
    story.holds(1, 1_000, None);
    if let Some(second) = second {
        story.grants(second, 'b', 5);
    }
    story.grants(third, 'c', 9);
    story.holds(9, third, Some(third + 10));
    story.judge()
}

#[test]
fn gap_of_one_ttl_after_a_killed_holder_is_allowed() {
    let judged = killed_holder(None, 3_010);

    assert_eq!((judged.dead_in_gap, judged.gap.as_millis()), (0, 2_010));
    assert!(judged.part_of_bound < 1.1, "{judged:?}");
}

#[test]
fn longer_gap_without_a_grant_to_a_dead_waiter_is_found() {
    let judged = killed_holder(None, 3_400);

    assert_eq!((judged.dead_in_gap, judged.gap.as_millis()), (0, 2_400));
    assert!(judged.part_of_bound > 1.1, "{judged:?}");
}

#[test]
fn grant_to_a_dead_waiter_extends_the_bound_by_a_ttl() {
    let allowed = killed_holder(Some(3_010), 5_020);
    let too_long = killed_holder(Some(3_010), 5_500);

    assert_eq!((allowed.dead_in_gap, too_long.dead_in_gap), (1, 1));
    assert!(allowed.part_of_bound < 1.1, "{allowed:?}");
    assert!(too_long.part_of_bound > 1.1, "{too_long:?}");
}

#[test]
fn grant_that_is_passed_on_at_once_does_not_extend_the_bound() {
    let judged = killed_holder(Some(3_390), 3_400);

    assert_eq!(judged.dead_in_gap, 0);
    assert!(judged.part_of_bound > 1.1, "{judged:?}");
}

#[test]
fn grants_in_another_order_than_the_arrivals_are_found() {
    let mut story = Story::default();
    story.joins(500, 'b');
    story.joins(501, 'a');
    story.grants(1_000, 'a', 1);
    story.holds(1, 1_000, Some(1_010));
    story.grants(1_010, 'b', 2);
    story.holds(2, 1_010, Some(1_020));

    assert_eq!(story.judge().out_of_order, 1);
}
