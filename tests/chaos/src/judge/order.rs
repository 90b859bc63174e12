//! Judges the order of waiters: a store with a queue grants a key to the waiter that came first.

use std::time::Duration;

use crate::judge::ledger::{FaultRecord, Grant, Ledger, Wait};
use crate::judge::safety::{Finding, Rule};
use crate::monotonic::Monotonic;

#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) findings: Vec<Finding>,
    /// The pairs of a granted wait and a later claim in which the wait must be granted first.
    pub(crate) judged: usize,
    /// The pairs in which the later claim was granted first, but a fault or an expiry excuses the
    /// order.
    pub(crate) excused: usize,
}

pub(crate) fn judge_order(ledger: &Ledger, ttl: Duration) -> Order {
    let mut order = Order::default();
    let grants = |wait: &Wait| {
        let counter = wait.counter;
        ledger.grants.iter().filter(move |grant| grant.counter == counter)
    };
    for wait in &ledger.waits {
        let is_its = |grant: &&Grant| {
            grant.incarnation == wait.incarnation && grant.asked == wait.asked && grant.by == "wait"
        };
        // A wait that was dropped, or whose process was killed, has no grant.
        let Some(own) = grants(wait).find(is_its) else { continue };
        let Some(until) = own.held_from else { continue };
        let rivals = grants(wait).filter(|other| {
            // A hand-over passes the key to one process, not to the queue.
            wait.queued < other.asked && other.asked < until && other.by != "resume"
        });
        for other in rivals {
            let first = if other.token < own.token { other } else { own };
            if is_excused(ledger, wait, first, ttl) {
                order.excused += usize::from(other.token < own.token);
                continue;
            }
            order.judged += 1;
            if other.token < own.token {
                order.findings.push(finding(wait, own, other, until));
            }
        }
    }
    order
}

fn finding(wait: &Wait, own: &Grant, other: &Grant, until: Monotonic) -> Finding {
    Finding {
        rule: Rule::Order,
        counter: wait.counter,
        from: wait.queued,
        until,
        what: format!("{other} was asked for after {own} was queued, and granted before it"),
        is_explained: false,
    }
}

/// Whether the wait may have lost its place before the `first` of two grants, or the key may have
/// been free although waiters were queued.
fn is_excused(ledger: &Ledger, wait: &Wait, first: &Grant, ttl: Duration) -> bool {
    let Some(end) = first.held_from else { return true };
    let touches = |fault: &FaultRecord| {
        fault.from <= end && wait.queued <= fault.until + ttl && may_lose_a_place(fault, wait)
    };
    let mut before: Vec<_> = ledger
        .grants
        .iter()
        .filter(|grant| grant.counter == wait.counter && grant.token <= first.token)
        .collect();
    before.sort_by_key(|grant| grant.token);
    let left_it_free = before.array_windows().any(|[grant, next]| {
        // The key was already held again when the wait got its place.
        let was_resolved = next.held_from.is_some_and(|held| held < wait.queued);
        let was_left = !was_released(grant) || has_silent_holder(grant, next, ttl);
        !was_resolved && next.by != "resume" && was_left
    });
    left_it_free || ledger.faults.iter().any(touches)
}

/// A release grants the key to the next waiter. After other ends, the key is free until a waiter
/// renews its place, and a claim without a place may obtain the key.
fn was_released(grant: &Grant) -> bool {
    grant.ended.as_ref().is_some_and(|(_, how)| how == "released" || how == "dropped")
}

/// Whether an unreported grant may have expired between `grant` and `next`, because the answer to a
/// request was lost.
fn has_silent_holder(grant: &Grant, next: &Grant, ttl: Duration) -> bool {
    let ended = grant.ended.as_ref().map(|(at, _)| *at);
    ended.zip(next.held_from).is_some_and(|(ended, held)| ended + ttl <= held)
}

/// Whether a fault may cost this wait its place, or may leave the key to a process that does not
/// report it.
fn may_lose_a_place(fault: &FaultRecord, wait: &Wait) -> bool {
    match fault.name {
        "scripts flushed" | "worker's wall clock stepped" => false,
        "worker killed" => true,
        _ => match fault.to.strip_prefix("worker ") {
            Some(rest) => {
                rest.split(' ').next() == Some(wait.incarnation.worker.to_string().as_str())
            }
            None => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::ledger::{Effect, Incarnation};
    use crate::store::Clocks;

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(2);

    struct Made {
        ledger: Ledger,
        start: Monotonic,
    }

    impl Made {
        fn overtaken() -> Self {
            let start = Monotonic::now();
            let mut made = Self { ledger: Ledger::new(start, Clocks::InStep), start };
            made.granted(3, 1, 9, 14).granted(2, 2, 12, 15).granted(1, 3, 10, 20);
            let incarnation = Incarnation { worker: 1, number: 1 };
            let (asked, queued) = (made.at(10), made.at(11));
            made.ledger.waits.push(Wait { counter: 0, incarnation, asked, queued });
            made
        }

        fn at(&self, second: u32) -> Monotonic {
            self.start + SECOND * second
        }

        fn granted(&mut self, worker: usize, token: u64, asked: u32, held: u32) -> &mut Self {
            let held = self.at(held);
            self.ledger.granted(Grant {
                counter: 0,
                token,
                incarnation: Incarnation { worker, number: 1 },
                asked: self.at(asked),
                by: "wait".to_owned(),
                held_from: Some(held),
                held_until: Some(held),
                ended: Some((held, "released".to_owned())),
            });
            self
        }

        fn fault(mut self, name: &'static str, to: &str, from: u32) -> Self {
            let (from, kind) = (self.at(from), Effect::Exclusive);
            let (to, counters) = (to.to_owned(), None);
            self.ledger.faults.push(FaultRecord { name, to, from, until: from, kind, counters });
            self
        }

        fn found(&self) -> usize {
            judge_order(&self.ledger, TTL).findings.len()
        }
    }

    #[test]
    fn overtaken_wait_is_found() {
        assert_eq!(Made::overtaken().found(), 1);
    }

    #[test]
    fn claim_sent_before_the_place_was_known_may_be_first() {
        let mut made = Made::overtaken();
        made.ledger.waits[0].queued = made.at(13);

        assert_eq!(made.found(), 0);
    }

    #[test]
    fn hand_over_may_bypass_the_queue() {
        let mut made = Made::overtaken();
        made.ledger.grants[1].by = "resume".to_owned();

        assert_eq!(made.found(), 0);
    }

    #[test]
    fn order_of_arrival_breaks_no_rule() {
        let mut made = Made::overtaken();
        made.ledger.grants[1].token = 4;
        made.ledger.grants[2].held_from = Some(made.at(15));

        let order = judge_order(&made.ledger, TTL);

        assert_eq!((order.findings.len(), order.judged), (0, 1));
    }

    #[test]
    fn fault_excuses_only_waits_that_it_may_harm() {
        let found = |name, to, from| Made::overtaken().fault(name, to, from).found();

        assert_eq!(found("link cut", "worker 1 to server 1", 13), 0);
        assert_eq!(found("link cut", "worker 2 to server 1", 13), 1, "another worker");
        assert_eq!(found("worker stopped for a while", "worker 12", 13), 1, "another worker");
        assert_eq!(found("worker killed", "worker 2", 13), 0, "it may hold the key");
        assert_eq!(found("server flushed", "server 1", 13), 0);
        assert_eq!(found("scripts flushed", "server 1", 13), 1, "no place is lost");
        assert_eq!(found("server flushed", "server 1", 8), 1, "long before");
        assert_eq!(found("server flushed", "server 1", 16), 1, "after the grant");
    }

    #[test]
    fn gap_of_a_ttl_between_two_grants_excuses_another_order() {
        let mut made = Made::overtaken();
        let ended = |second| Some((made.at(second), "released".to_owned()));

        let (late, early) = (ended(14), ended(13));

        made.ledger.grants[0].ended = late;
        assert_eq!(made.found(), 1, "a second before the next grant");
        made.ledger.grants[0].ended = early;
        assert_eq!(made.found(), 0, "two seconds before the next grant");
    }

    #[test]
    fn expired_holder_excuses_another_order() {
        let mut made = Made::overtaken();
        made.ledger.grants[0].ended = None;

        assert_eq!(made.found(), 0);
    }
}
