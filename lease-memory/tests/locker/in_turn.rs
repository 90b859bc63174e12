//! Lockers that wait in turn.

use std::time::Duration;

use futures_util::FutureExt;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{
    Beat, Claim, Enqueued, Grant, Heartbeat, LockStore, Nonce, Parent, Vacancy,
};
use lease_core::{LeaseKey, LeaseOptions, Locker, Waiting};
use lease_memory::MemoryStore;
use lease_test_servers::claims::granted;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::obtained;

const TTL: Duration = Duration::from_secs(30);

const KEY: &str = "job";

fn store() -> Faulty<MemoryStore> {
    Faulty::new(MemoryStore::counting_from_one())
}

fn locker(store: &Faulty<MemoryStore>) -> Locker {
    Locker::new(store.clone()).with_options(LeaseOptions::new(TTL).unwrap())
}

fn key() -> LeaseKey {
    crate::key(KEY)
}

#[tokio::test(start_paused = true)]
async fn waiter_at_rest_sends_at_most_four_requests_per_ttl() {
    const WAITERS: usize = 50;
    const TTLS: usize = 10;
    let store = store();
    let _held = obtained(&locker(&store), KEY).await;
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let locker = locker(&store);
        waiters.spawn(async move { locker.wait_until_obtained(&key()).await });
    }
    sleep(TTL).await;
    let before = store.calls(Call::Enqueue) + store.calls(Call::Obtain);

    sleep(TTL * 10).await;

    let sent = store.calls(Call::Enqueue) + store.calls(Call::Obtain) - before;
    assert!(sent <= WAITERS * TTLS * 4, "{sent}");
    assert!(sent >= WAITERS * TTLS, "{sent} requests are too few to keep the places");
}

/// Regular renewals come 5 s before and 5 s after the lease ends. The waiter must also renew at the
/// end.
#[tokio::test(start_paused = true)]
async fn waiter_obtains_key_when_lease_of_silent_holder_ends() {
    let store = store();
    store.every(Call::Heartbeat, Fault::Hang);
    let _held = obtained(&locker(&store), KEY).await;
    sleep(TTL / 6).await;

    let (waiter, key) = (locker(&store), key());
    let wait = waiter.wait_until_obtained(&key);
    let waited = timeout(TTL * 5 / 6 + Duration::from_millis(100), wait).await;

    assert!(waited.is_ok_and(|lease| lease.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn position_decreases_as_waiters_leave() {
    let store = store();
    let _held = obtained(&locker(&store), KEY).await;
    let first = tokio::spawn(locker(&store).wait_in_turn(&key()));
    sleep(Duration::from_millis(1)).await;
    let second = locker(&store).wait_in_turn(&key());
    let mut positions = second.positions();
    let _second = tokio::spawn(second);
    assert_eq!(*positions.wait_for(Option::is_some).await.unwrap(), Some(1));

    first.abort();

    let next = timeout(TTL, positions.wait_for(|position| *position == Some(0))).await;
    assert!(next.is_ok(), "the next renewal returns the new position");
}

/// The waiter is dropped right after its grant. One request must free the key.
#[tokio::test(start_paused = true)]
async fn waiter_dropped_at_its_grant_frees_the_key() {
    let store = store();
    let (holder, waiter) = (locker(&store), locker(&store));
    let held = obtained(&holder, KEY).await;
    {
        let key = key();
        let wait = waiter.wait_until_obtained(&key);
        assert!(timeout(Duration::from_millis(1), wait).await.is_err());
    }
    let mut waiting = Box::pin(waiter.wait_in_turn(&key()));
    assert!(timeout(Duration::from_millis(1), &mut waiting).await.is_err());
    held.release().await.unwrap();
    assert!(holder.holder(&key()).await.unwrap().is_some(), "the waiter has the key");

    drop(waiting);
    waiter.close().await;

    assert_eq!(holder.holder(&key()).await.unwrap(), None);
    assert_eq!(store.calls(Call::Leave), 2, "one request for each dropped wait");
}

#[tokio::test(start_paused = true)]
async fn deadline_counts_from_the_request_that_the_grant_names() {
    let store = store();
    let held = obtained(&locker(&store), KEY).await;
    let waiter = locker(&store);
    let waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key()).await.unwrap() });
    sleep(Duration::from_millis(1)).await;
    // No renewal arrives from now on, so the grant names the first request.
    store.every(Call::Enqueue, Fault::Hang);
    // A hanging heartbeat does not extend the lease.
    store.every(Call::Heartbeat, Fault::Hang);
    let late = TTL * 13 / 30;
    sleep(late).await;

    held.release().await.unwrap();
    let lease = waiting.await.unwrap();

    assert!(lease.remaining() <= TTL * 17 / 30, "{:?}", lease.remaining());
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn racing_waiter_joins_no_queue() {
    let store = store();
    let held = obtained(&locker(&store), KEY).await;
    let options = LeaseOptions::new(TTL).unwrap().with_waiting(Waiting::Racing);
    let racing = locker(&store).with_options(options);
    let waiting = tokio::spawn(async move { racing.wait_until_obtained(&key()).await.unwrap() });
    sleep(Duration::from_millis(1)).await;

    held.release().await.unwrap();
    let lease = waiting.await.unwrap();

    assert!(lease.is_held());
    assert_eq!(store.calls(Call::Enqueue), 0);
}

/// A waiter that is dropped while it takes over an unanswered claim of its locker must leave the queue.
#[tokio::test(start_paused = true)]
async fn wait_dropped_while_it_takes_over_a_claim_frees_the_key() {
    let store = store();
    let (holder, waiter) = (locker(&store), locker(&store));
    let held = obtained(&holder, KEY).await;
    let key = key();
    // The waiter queues, so its next wait makes no attempt outside the queue.
    let wait = waiter.wait_until_obtained(&key);
    assert!(timeout(Duration::from_millis(1), wait).await.is_err());
    held.release().await.unwrap();
    store.next(Call::Obtain, Fault::LoseReply);
    assert!(waiter.obtain(&key).await.is_err());
    let attempts = store.calls(Call::Obtain);
    store.every(Call::Obtain, Fault::HangReply);
    while store.calls(Call::Obtain) == attempts {
        sleep(Duration::from_millis(1)).await;
    }

    assert!(waiter.wait_until_obtained(&key).now_or_never().is_none());
    waiter.close().await;

    assert_eq!(holder.holder(&key).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn waiter_that_cannot_listen_polls() {
    for fault in [Fault::Fail, Fault::Hang] {
        let store = store();
        let held = obtained(&locker(&store), KEY).await;
        store.every(Call::Listen, fault);
        let (waiter, key) = (locker(&store), key());
        let waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key).await });
        sleep(TTL).await;

        held.release().await.unwrap();

        let waited = timeout(TTL / 3, waiting).await;
        assert!(waited.is_ok_and(|lease| lease.unwrap().is_ok()), "{fault:?}");
    }
}

/// The process of the holder and of the first eight waiters dies.
#[tokio::test(start_paused = true)]
async fn ninth_waiter_obtains_key_soon_after_all_others_died() {
    let store = store();
    let queues = store.in_turn().unwrap();
    store.every(Call::Heartbeat, Fault::Hang);
    let _held = obtained(&locker(&store), KEY).await;
    let mut listening = Vec::new();
    for _ in 0..8 {
        let claim = Claim::new(key(), "dead".parse().unwrap(), Nonce::random(), TTL);
        listening.push(queues.listen(&claim).await.unwrap());
        assert!(matches!(queues.enqueue(&claim).await, Ok(Enqueued::Queued(_))));
    }
    // Regular renewals come 5 s before and 5 s after the lease ends.
    sleep(TTL / 6).await;
    let (waiter, key) = (locker(&store), key());
    let mut waiting = Box::pin(waiter.wait_in_turn(&key));
    assert!(timeout(Duration::from_millis(1), &mut waiting).await.is_err());

    drop(listening);
    let waited = timeout(TTL * 5 / 6 + TTL / 10, waiting).await;

    assert!(waited.is_ok_and(|lease| lease.is_ok()));
}

/// A key that is held under a session has no queue. Once it has one, racing waiters would never obtain it.
#[tokio::test(start_paused = true)]
async fn racing_waiter_joins_the_queue_within_a_ttl_of_its_start() {
    let store = store();
    let inner = store.inner();
    let grant = hold_under_session(&inner).await;
    let waiter = locker(&store);
    let lessee = waiter.lessee().clone();
    let _waiting = tokio::spawn(waiter.wait_in_turn(&key()));
    sleep(TTL / 10).await;
    assert_eq!(store.calls(Call::Enqueue), 1, "the store answered that it keeps no queue");
    // A heartbeat takes the lease out of its session.
    let beat = inner.heartbeat(&grant, Beat::GRANTED.next()).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);

    sleep(TTL * 5 / 2).await;
    inner.release(&grant, None).await.unwrap();

    let holder = inner.holder(&key()).await.unwrap().map(|holder| holder.lessee);
    assert_eq!(holder, Some(lessee), "the release grants the key to the first claim of the queue");
}

/// Holds the key under a session. Both leases last for longer than the test.
async fn hold_under_session(store: &MemoryStore) -> Grant {
    let claim = |key| Claim::new(key, "holder".parse().unwrap(), Nonce::random(), TTL * 100);
    let session = store.obtain(&claim(crate::key("session"))).await.unwrap();
    let (session, _) = granted(session);
    let child = claim(key()).under(Parent::from(&session));
    let vacancy = Vacancy::seen(&child.key, None, &child.lessee, None).unwrap();
    granted(store.sessions().unwrap().obtain_under(&child, &vacancy).await.unwrap()).0
}

/// A holder with a short ttl extends its lease many times per ttl of the waiter.
#[tokio::test(start_paused = true)]
async fn waiter_behind_a_short_lease_sends_at_most_four_requests_per_ttl() {
    let store = store();
    let short = LeaseOptions::new(Duration::from_secs(1)).unwrap();
    let _held = obtained(&locker(&store).with_options(short), KEY).await;
    let waiter = locker(&store);
    let _waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key()).await });
    sleep(TTL).await;
    let before = store.calls(Call::Enqueue);

    sleep(TTL * 10).await;

    let sent = store.calls(Call::Enqueue) - before;
    assert!(sent <= 40, "{sent}");
}
