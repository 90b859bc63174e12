//! Sessions: one lease covers many leases, and only that lease sends heartbeats.

use std::time::Duration;

use futures_util::future::join_all;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{
    Attempt, Attributes, Handed, Lease, LeaseOptions, LeaseState, Locker, LossCause, Released,
    Session, StoreErrorKind, Ttl,
};
use lease_memory::MemoryStore;
use tokio::time::{advance, sleep, timeout};

use crate::{key, obtained};

const TTL: Duration = Duration::from_secs(10);
const MANY: usize = 10_000;

fn store() -> Faulty<MemoryStore> {
    Faulty::new(MemoryStore::counting_from_one())
}

fn locker(store: impl LockStore) -> Locker {
    Locker::new(store).with_options(LeaseOptions::new(TTL).unwrap())
}

async fn session(store: &Faulty<MemoryStore>, name: &str) -> Session {
    Session::start(&locker(store.clone()), &key(name)).await.unwrap()
}

async fn many(locker: &Locker, count: usize) -> Vec<Lease> {
    let names = (0..count).map(|number| format!("shards/{number}"));
    join_all(names.map(|name| async move { obtained(locker, &name).await })).await
}

async fn beats_in_100_periods(store: &Faulty<MemoryStore>, locker: &Locker) -> usize {
    let before = store.calls(Call::Heartbeat);
    sleep(locker.options().heartbeat_period() * 100).await;
    store.calls(Call::Heartbeat) - before
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_send_one_heartbeat_per_period() {
    let store = store();
    let session = session(&store, "workers/1").await;
    let leases = many(session.locker(), MANY).await;

    let beats = beats_in_100_periods(&store, session.locker()).await;

    assert!((100..=118).contains(&beats), "{beats} heartbeats in 100 periods");
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn hundred_leases_without_a_session_send_a_hundred_heartbeats() {
    let store = store();
    let locker = locker(store.clone());
    let leases = many(&locker, 100).await;

    let beats = beats_in_100_periods(&store, &locker).await;

    assert!(beats >= 100 * 100, "{beats} heartbeats of {} leases", leases.len());
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_session_that_is_cut_off_are_lost_by_its_deadline() {
    let store = store();
    let session = session(&store, "workers/1").await;
    let leases = many(session.locker(), MANY).await;
    store.choose(|_call| Some(Fault::Hang));
    let remaining = session.lease().remaining();

    let losses =
        timeout(remaining + Duration::from_millis(2), join_all(leases.iter().map(Lease::lost)));

    let losses = losses.await.expect("each loss is reported by the deadline of the session");
    assert_eq!(losses.len(), MANY);
    assert!(losses.iter().all(|lost| lost.cause == LossCause::SessionEnded));
    assert!(!leases.iter().any(Lease::is_held));
    assert!(leases.iter().all(|lease| lease.remaining().is_zero()));
}

#[tokio::test(start_paused = true)]
async fn lease_is_lost_before_another_session_obtains_its_key() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let lease = obtained(first.locker(), "shard").await;
    let second = session(&store, "workers/2").await;
    let shard = key("shard");
    let waiting = second.locker().wait_until_obtained(&shard);
    assert!(timeout(TTL * 5, waiting).await.is_err(), "the first session is held");

    first.abandon();

    assert!(!lease.is_held());
    let next = timeout(TTL * 2, second.locker().wait_until_obtained(&key("shard"))).await;
    assert!(next.unwrap().unwrap().token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn plain_locker_obtains_key_of_lost_session() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let lease = obtained(first.locker(), "shard").await;
    first.abandon();
    assert!(!lease.is_held());

    let next = timeout(TTL * 2, locker(store).wait_until_obtained(&key("shard"))).await;

    assert!(next.unwrap().unwrap().token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn key_is_obtained_if_record_of_ended_session_was_created_anew() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let lease = obtained(first.locker(), "shard").await;
    first.abandon();
    // The store removes the record of the session.
    sleep(TTL * 3).await;
    let is_created = store.create(&key("workers/1"), &Attributes::new()).await.unwrap();
    assert!(is_created && !lease.is_held());

    let second = session(&store, "workers/2").await;
    let next = timeout(TTL * 2, second.locker().wait_until_obtained(&key("shard"))).await;

    assert!(next.unwrap().unwrap().token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn leases_of_former_session_are_lost_and_obtained_anew() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let lease = obtained(first.locker(), "shard").await;
    let former = first.locker().clone();

    assert_eq!(first.end().await.unwrap(), Released::Freed);
    let second = session(&store, "workers/1").await;

    assert_eq!(lease.lost().await.cause, LossCause::SessionEnded);
    let refused = former.obtain(&key("shard")).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    assert!(obtained(second.locker(), "shard").await.token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn released_and_dropped_leases_are_free_while_the_session_lasts() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let second = session(&store, "workers/2").await;

    let released = obtained(first.locker(), "released").await.release().await.unwrap();
    drop(obtained(first.locker(), "dropped").await);
    first.locker().close().await;

    assert_eq!(released, Released::Freed);
    drop(obtained(second.locker(), "released").await);
    drop(obtained(second.locker(), "dropped").await);
    assert!(first.lease().is_held());
}

#[tokio::test(start_paused = true)]
async fn handed_over_lease_outlasts_its_session() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let lease = obtained(first.locker(), "shard").await;
    let token = lease.token();

    let handed = lease.hand_over(Ttl::clamped(TTL)).await.unwrap();
    first.end().await.unwrap();

    let Handed::Over(handed) = handed else { panic!("the lease was held") };
    let resumed = locker(store).resume(handed).await.unwrap().unwrap();
    assert!(resumed.token() > token);
    sleep(TTL * 3).await;
    assert!(resumed.is_held());
}

#[tokio::test(start_paused = true)]
async fn claim_without_an_answer_is_repeated_and_released() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let second = session(&store, "workers/2").await;
    store.next(Call::Obtain, Fault::LoseReply);

    let unclear = first.locker().obtain(&key("shard")).await;

    assert!(unclear.unwrap_err().is_retryable());
    let next = timeout(TTL * 3, second.locker().wait_until_obtained(&key("shard"))).await;
    assert!(next.unwrap().unwrap().is_held());
    assert!(first.lease().is_held());
}

#[tokio::test(start_paused = true)]
async fn next_attempt_repeats_claim_without_an_answer() {
    let store = store();
    let session = session(&store, "workers/1").await;
    store.next(Call::Obtain, Fault::LoseReply);
    session.locker().obtain(&key("shard")).await.unwrap_err();

    let lease = obtained(session.locker(), "shard").await;

    sleep(TTL * 2).await;
    assert!(lease.is_held());
    assert_eq!(store.holder(&key("shard")).await.unwrap().unwrap().token, Some(lease.token()));
}

/// A key under a session does not expire, so the locker repeats the release until it succeeds.
#[tokio::test(start_paused = true)]
async fn release_is_repeated_for_longer_than_a_ttl() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let second = session(&store, "workers/2").await;
    let lease = obtained(first.locker(), "shard").await;
    store.every(Call::Release, Fault::Fail);
    drop(lease);
    sleep(TTL * 5).await;
    assert!(matches!(second.locker().obtain(&key("shard")).await, Ok(Attempt::Held(_))));

    store.heal();

    let next = timeout(TTL * 3, second.locker().wait_until_obtained(&key("shard"))).await;
    assert!(next.unwrap().unwrap().is_held());
}

/// The caller does not wait for the release, which is repeated for as long as the session lasts.
#[tokio::test(start_paused = true)]
async fn key_is_released_after_delete_without_an_answer() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let second = session(&store, "workers/2").await;
    let lease = obtained(first.locker(), "shard").await;
    store.every(Call::Write, Fault::Fail);
    store.every(Call::Release, Fault::Fail);

    let deleted = timeout(TTL * 2, lease.delete(store.clone())).await.unwrap();

    assert!(deleted.unwrap_err().is_retryable());
    sleep(TTL * 5).await;
    store.heal();
    let next = timeout(TTL * 3, second.locker().wait_until_obtained(&key("shard"))).await;
    assert!(next.unwrap().unwrap().is_held());
    assert!(first.lease().is_held());
}

#[tokio::test(start_paused = true)]
async fn grant_answered_after_end_of_session_makes_no_lease() {
    let store = store();
    let first = session(&store, "workers/1").await;
    let former = first.locker().clone();
    store.next(Call::Obtain, Fault::DelayReply(TTL / 10));
    let attempt = tokio::spawn(async move { former.obtain(&key("shard")).await });
    sleep(TTL / 20).await;

    first.end().await.unwrap();

    let refused = attempt.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    let second = session(&store, "workers/2").await;
    assert!(obtained(second.locker(), "shard").await.is_held());
}

#[tokio::test(start_paused = true)]
async fn lease_follows_the_state_of_its_session() {
    let store = store();
    let session = session(&store, "workers/1").await;
    let lease = obtained(session.locker(), "shard").await;
    let (mut state, work) = (lease.state(), lease.cancelled_on_loss());
    assert_eq!(*state.borrow_and_update(), LeaseState::Held);

    store.every(Call::Heartbeat, Fault::Fail);
    state.wait_for(|state| *state == LeaseState::AtRisk).await.unwrap();
    store.heal();
    state.wait_for(|state| *state == LeaseState::Held).await.unwrap();
    assert!(!work.is_cancelled());
    store.every(Call::Heartbeat, Fault::Fail);
    work.cancelled().await;

    assert!(lease.is_held(), "the work is cancelled before the deadline, by the grace time");
    let lost = LeaseState::Lost(LossCause::SessionEnded);
    state.wait_for(|state| *state == lost).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn clock_that_leaps_ends_leases_of_the_session() {
    let store = store();
    let session = session(&store, "workers/1").await;
    let lease = obtained(session.locker(), "shard").await;

    advance(TTL).await;

    assert!(!lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn session_cannot_be_held_under_a_session() {
    let store = store();
    let session = session(&store, "workers/1").await;
    let lease = obtained(session.locker(), "shard").await;

    let refused = session.locker().under(&lease).unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
}
