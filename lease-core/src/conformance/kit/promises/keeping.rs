//! A locker on this store keeps its promises, also behind a bad network.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use crate::conformance::kit::case::Case;
use crate::conformance::{Call, Fault, Fixture};
use crate::heartbeat::ending::LeaseState;
use crate::heartbeat::release::Released;
use crate::lease::{Handed, Lease};
use crate::lengths::Ttl;
use crate::locker::Locker;
use crate::lost::LossCause;

/// If the reply to an applied claim is lost, the next attempt recognises the grant as its own.
pub async fn lost_reply_to_obtain_is_recognised<F: Fixture>(case: Case<F>) {
    let locker = case.locker();
    case.store.next(Call::Obtain, Fault::LoseReply);

    let since = case.now();
    let lease = obtained(&case, &locker).await;

    assert!(
        case.now().since(since) < case.ttl,
        "the locker waited until its own lease expired: the store should answer a repeated claim \
         with its grant"
    );
    assert!(lease.is_held(), "the lease should be held: its claim was granted");
}

/// A release succeeds although the reply to its first request is lost.
pub async fn lost_reply_to_release_is_no_error<F: Fixture>(case: Case<F>) {
    let lease = obtained(&case, &case.locker()).await;
    case.store.next(Call::Release, Fault::LoseReply);

    let released = soon(&case, lease.release()).await;

    assert!(
        matches!(released, Ok(Released::Freed)),
        "the store should accept a second release of the same grant: {released:?}"
    );
    case.has_no_holder("a release whose reply was lost").await;
}

/// After one failed heartbeat, the lease is at risk. The next successful heartbeat ends the risk.
pub async fn one_failed_heartbeat_is_no_loss<F: Fixture>(case: Case<F>) {
    let lease = obtained(&case, &case.locker()).await;
    let mut state = lease.state();
    case.store.next(Call::Heartbeat, Fault::Fail);

    let risk = soon(&case, state.wait_for(|state| *state == LeaseState::AtRisk)).await.is_ok();
    let held = soon(&case, state.wait_for(|state| *state == LeaseState::Held)).await.is_ok();

    assert!(
        risk && held && lease.is_held(),
        "the store should extend the lease by the heartbeat after a failed heartbeat: at risk \
         {risk}, held again {held}"
    );
}

/// The loss is reported in time if the store never answers heartbeats.
pub async fn hanging_store_does_not_delay_loss<F: Fixture>(case: Case<F>) {
    loss_comes_first(case, Fault::Hang).await;
}

/// The loss is reported in time if the store fails each heartbeat at once.
pub async fn failing_store_does_not_delay_loss<F: Fixture>(case: Case<F>) {
    loss_comes_first(case, Fault::Fail).await;
}

async fn loss_comes_first<F: Fixture>(case: Case<F>, fault: Fault) {
    let lease = obtained(&case, &case.locker()).await;
    case.store.every(Call::Heartbeat, fault);
    let since = case.now();

    let reported = async {
        let lost = lease.lost().await;
        (lost.cause, case.now())
    };
    let successor = case.sound_locker();
    let key = case.key();
    let taken = async {
        case.pass(case.ttl / 2).await;
        let successor = soon(&case, successor.wait_until_obtained(&key)).await;
        (successor, case.now())
    };
    let ((cause, reported), (successor, taken)) = tokio::join!(reported, taken);

    assert_eq!(cause, LossCause::Expired, "no heartbeat was answered: the lease should expire");
    assert!(!lease.is_held(), "a lease that was reported lost should not be held");
    assert!(
        reported <= taken,
        "the key was granted to another lessee {:?} before the loss was reported: the store \
         should not grant it before the ttl has passed",
        reported.since(taken)
    );
    case.not_before_ttl(taken, since - case.ttl / 2);
    assert!(successor.is_ok(), "the store should grant a key whose lease expired: {successor:?}");
}

/// An attempt that is dropped before its answer leaves the key free.
pub async fn dropped_attempt_leaves_key_free<F: Fixture>(case: Case<F>) {
    let locker = case.locker();
    case.store.next(Call::Obtain, Fault::DelayReply(case.ttl / 10));

    let key = case.key();
    let given_up = timeout(case.ttl / 20, locker.obtain(&key)).await;
    assert!(given_up.is_err(), "the reply is delayed: the attempt should not have ended");
    soon(&case, locker.close()).await;

    case.has_no_holder("an attempt was dropped, and its locker has ended").await;
}

/// A lease that is dropped leaves the key free.
pub async fn dropped_lease_leaves_key_free<F: Fixture>(case: Case<F>) {
    let locker = case.locker();
    let lease = obtained(&case, &locker).await;

    drop(lease);
    soon(&case, locker.close()).await;

    case.has_no_holder("a lease was dropped, and its locker has ended").await;
}

/// A claim, heartbeat or release that arrives twice has the same effect as if it arrived once.
pub async fn doubled_request_changes_nothing<F: Fixture>(case: Case<F>) {
    let doubled = Fault::Double(Duration::from_millis(1));
    for call in [Call::Heartbeat, Call::Release] {
        case.store.every(call, doubled);
    }
    if !case.fixture.grants_repeated_claims_anew() {
        case.store.every(Call::Obtain, doubled);
    }
    let lease = obtained(&case, &case.locker()).await;
    case.pass(case.ttl * 3 / 2).await;
    assert!(lease.is_held(), "the store should extend a lease whose heartbeats arrive twice");

    let released = lease.release().await;
    case.pass(Duration::from_millis(50)).await;

    assert!(
        matches!(released, Ok(Released::Freed)),
        "the store should accept a release that arrives twice: {released:?}"
    );
    case.has_no_holder("requests that each arrived twice").await;
}

/// A lease with heartbeats lasts longer than its ttl.
pub async fn lease_outlives_its_ttl_with_heartbeats<F: Fixture>(case: Case<F>) {
    let lease = obtained(&case, &case.locker()).await;

    case.pass(case.ttl * 3).await;

    assert!(lease.is_held(), "the store should extend a lease as long as heartbeats arrive");
    case.has_holder(lease.lessee(), "heartbeats extend its lease").await;
}

/// A waiter obtains the key after the holder has released it.
pub async fn waiter_obtains_released_key<F: Fixture>(case: Case<F>) {
    let lease = obtained(&case, &case.locker()).await;
    let waiter = case.sound_locker();
    let key = case.key();

    let release = async {
        case.pass(case.ttl / 8).await;
        lease.release().await
    };
    let (waited, released) = tokio::join!(soon(&case, waiter.wait_until_obtained(&key)), release);

    assert!(
        waited.is_ok_and(|lease| lease.is_held()),
        "the store should grant a released key to the lessee that waits for it"
    );
    assert!(
        matches!(released, Ok(Released::Freed)),
        "the store should accept the release of the current grant: {released:?}"
    );
}

/// A lease that was handed over is held again after `resume`.
pub async fn handed_over_lease_is_resumed<F: Fixture>(case: Case<F>) {
    let lease = obtained(&case, &case.locker()).await;

    let Ok(Handed::Over(handed)) = lease.hand_over(Ttl::clamped(case.ttl)).await else {
        unreachable!("a lease that is held can be handed over")
    };
    let to = case.sound_locker();
    let resumed = to.resume(handed).await;

    assert!(
        matches!(&resumed, Ok(Some(lease)) if lease.is_held()),
        "the store should allow the adoption of a lease that was handed over: {resumed:?}"
    );
    case.has_holder(to.lessee(), "it resumed the lease").await;
}

async fn obtained<F: Fixture>(case: &Case<F>, locker: &Locker) -> Lease {
    let key = case.key();
    match soon(case, locker.wait_until_obtained(&key)).await {
        Ok(lease) => lease,
        Err(error) => unreachable!("a free key was not obtained: {error:?}"),
    }
}

/// The limit is far above the time that a correct store needs.
#[expect(clippy::expect_used, reason = "a panic reports a broken promise")]
async fn soon<F: Fixture, T>(case: &Case<F>, what: impl Future<Output = T>) -> T {
    timeout(case.ttl * 20, what).await.expect("the store should let this end within 20 ttls")
}
