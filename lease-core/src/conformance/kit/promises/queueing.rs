//! Waiting in turn: the order of a queue, and how a place ends. Stores without queues pass.

use std::time::Duration;

use tokio::time::timeout;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_held};
use crate::store::attributes::Attributes;
use crate::store::grant::{Claim, Grant, RequestNumber};
use crate::store::in_turn::{Enqueued, InTurn, Notice, Notices, Place};
use crate::store::lock_store::LockStore;

/// A freed key is granted to the waiters in the order in which their claims arrived.
pub async fn waiters_are_granted_in_order_of_arrival<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let mut held = case.granted("holder").await;
    let mut waiting = Vec::new();
    for lessee in ["a", "b", "c", "d"] {
        waiting.push(queued(&case, queues, lessee).await);
    }

    for mut waiter in waiting {
        case.release(&held).await;
        held = waiter.granted(queues).await;
    }

    case.release(&held).await;
    case.has_no_holder("the last waiter has released the key").await;
}

/// A release grants the key to the first waiter. No claim outside the queue obtains the key earlier.
pub async fn plain_claim_does_not_overtake_a_waiter<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let mut waiter = queued(&case, queues, "waiter").await;

    case.release(&held).await;

    drop(expect_held(case.ask(&case.claim("late")).await, "a claim that did not queue"));
    let granted = waiter.granted(queues).await;
    assert!(granted.token > held.token, "each grant should have a larger token than the last one");
}

/// A waiter that does not renew its place for a ttl is skipped.
pub async fn place_that_is_not_renewed_is_skipped<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.obtain(&case.long_claim(&case.key(), "holder")).await;
    let _dead = queued(&case, queues, "dead").await;
    let mut living = queued(&case, queues, "living").await;
    for _ in 0..6 {
        case.pass(case.ttl / 4).await;
        living.renewed(queues).await;
    }

    case.release(&held).await;

    living.granted(queues).await;
}

/// A renewal keeps the place: the waiter does not move to the end of the queue.
pub async fn renewed_place_is_kept<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let mut first = queued(&case, queues, "first").await;
    let mut second = queued(&case, queues, "second").await;

    let place = first.renewed(queues).await;
    let behind = second.renewed(queues).await;
    case.release(&held).await;

    assert_eq!(place.ahead.unwrap_or(0), 0, "the first waiter should have no waiter before it");
    assert_eq!(behind.ahead.unwrap_or(1), 1, "the second waiter should have one waiter before it");
    let held = first.granted(queues).await;
    case.release(&held).await;
    second.granted(queues).await;
}

/// A claim that has left its queue is not granted.
pub async fn waiter_that_left_is_skipped<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let mut left = queued(&case, queues, "left").await;
    let mut next = queued(&case, queues, "next").await;

    left.leaves(queues).await;
    case.release(&held).await;

    next.granted(queues).await;
}

/// If a waiter leaves after it was granted the key, the request to leave also frees the key.
pub async fn leaving_passes_a_granted_key_on<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let mut first = queued(&case, queues, "first").await;
    let mut second = queued(&case, queues, "second").await;
    case.release(&held).await;

    first.leaves(queues).await;

    second.granted(queues).await;
    second.leaves(queues).await;
    case.has_no_holder("the last waiter has left").await;
}

/// A grant names the largest request number that has arrived.
pub async fn grant_names_the_last_request_of_its_waiter<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let mut waiter = queued(&case, queues, "waiter").await;
    let first = waiter.claim.clone();
    waiter.renewed(queues).await;
    waiter.renewed(queues).await;
    drop(queues.enqueue(&first).await);

    case.release(&held).await;

    waiter.granted(queues).await;
}

/// After the holder's lease has expired, a renewal lets the store grant the key to the first waiter.
pub async fn expired_key_is_granted_to_its_first_waiter<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    drop(case.granted("crashed").await);
    let mut waiter = queued(&case, queues, "waiter").await;

    for _ in 0..80 {
        case.pass(case.ttl / 16).await;
        if let Some(grant) = waiter.asks(queues).await {
            assert_eq!(
                grant.nonce, waiter.claim.nonce,
                "the waiter should be granted its own claim"
            );
            return;
        }
    }
    panic_with("the store should grant an expired key to a waiter that renews its place");
}

/// An enqueue that arrives after its claim has left the queue holds the key for at most a ttl.
pub async fn late_enqueue_holds_the_key_for_at_most_a_ttl<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let mut left = queued(&case, queues, "left").await;
    left.leaves(queues).await;
    drop(queues.enqueue(&left.claim).await);

    case.release(&held).await;
    let since = case.now();
    let (_, taken) = case.taken_over("next").await;

    let after = taken.since(since);
    assert!(
        after < case.ttl * 2,
        "the key was held for {after:?} by a claim that had left its queue: the limit is a ttl"
    );
}

/// A renewal of a claim without a place is answered with `Gone`, and the claim gets no place.
pub async fn renewal_without_a_place_gets_none<F: Fixture>(case: Case<F>) {
    let Some(queues) = case.store.in_turn() else { return };
    let held = case.granted("holder").await;
    let claim = case.claim("nobody");
    let _listening = listen(queues, &claim).await;

    for _ in 0..2 {
        let answer = queues.renew(&claim).await;
        assert!(
            matches!(answer, Ok(Enqueued::Gone)),
            "the store should answer Gone to a renewal without a place: {answer:?}"
        );
    }
    case.release(&held).await;
    case.has_no_holder("a release without waiters").await;
}

struct Waiter {
    claim: Claim,
    notices: Notices,
}

/// Adds a claim to the queue of the usual key, which must be held.
async fn queued<F: Fixture>(case: &Case<F>, queues: &dyn InTurn, lessee: &str) -> Waiter {
    let claim = case.claim(lessee);
    let notices = listen(queues, &claim).await;
    let answer = queues.enqueue(&claim).await;
    assert!(
        matches!(answer, Ok(Enqueued::Queued(_))),
        "the store should queue a claim of a held key: {answer:?}"
    );
    Waiter { claim, notices }
}

#[expect(clippy::expect_used, reason = "a panic reports a broken promise")]
async fn listen(queues: &dyn InTurn, claim: &Claim) -> Notices {
    queues.listen(claim).await.expect("the store should deliver notices")
}

impl Waiter {
    #[expect(clippy::panic, reason = "a panic reports a broken promise")]
    async fn renewed(&mut self, queues: &dyn InTurn) -> Place {
        self.claim.request = self.claim.request.next();
        match queues.renew(&self.claim).await {
            Ok(Enqueued::Queued(place)) => place,
            answer => panic!("the store should keep a place that is renewed: {answer:?}"),
        }
    }

    async fn asks(&mut self, queues: &dyn InTurn) -> Option<Grant> {
        self.claim.request = self.claim.request.next();
        match queues.renew(&self.claim).await {
            Ok(Enqueued::Granted(grant, _)) => Some(grant),
            _ => None,
        }
    }

    async fn granted(&mut self, queues: &dyn InTurn) -> Grant {
        let last = self.claim.request;
        let grant = match self.noticed().await {
            Some((grant, _)) => grant,
            // Without notifications, or after a missed notice, the renewal returns the grant.
            None => match self.asks(queues).await {
                Some(grant) => grant,
                None => panic_with("the store should grant a freed key to its first waiter"),
            },
        };
        assert_eq!(grant.nonce, self.claim.nonce, "the grant should have the waiter's nonce");
        let named = grant.request.unwrap_or_else(|| RequestNumber::new(0));
        assert_eq!(
            named, last,
            "the grant should name the last request: the lease counts from this request"
        );
        grant
    }

    async fn noticed(&mut self) -> Option<(Grant, Attributes)> {
        if !self.notices.can_notify() {
            return None;
        }
        match timeout(LONGEST_NOTICE, self.notices.next()).await {
            Ok(Notice::Granted(grant, attributes)) => Some((grant, attributes)),
            Ok(Notice::Missed) => None,
            Err(_elapsed) => panic_with(
                "the first waiter should get a notice, or learn that a notice was missed",
            ),
        }
    }

    async fn leaves(&mut self, queues: &dyn InTurn) {
        let left = queues.leave(&self.claim).await;
        assert!(left.is_ok(), "the store should answer a claim that leaves: {left:?}");
    }
}

#[expect(clippy::panic, reason = "a panic reports a broken promise")]
#[track_caller]
fn panic_with(sentence: &str) -> ! {
    panic!("{sentence}")
}

/// A correct store delivers its notices much earlier.
const LONGEST_NOTICE: Duration = Duration::from_secs(60);
