//! What a locker and its leases do, on the memory store and in paused time.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{
    Attempt, BootClock, Clock, FencingToken, HandOver, Handed, Lease, LeaseKey, LeaseOptions,
    LeaseState, LockStore, Locker, LossCause, Metrics, Released, SkewedClock, StoreErrorKind,
};
use lease_memory::MemoryStore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_held_key_is_a_value_with_its_holder() {
    let store = MemoryStore::new();
    let (one, two) = (Locker::new(store.clone()), Locker::new(store));
    let lease = obtained(&one, "job").await;

    let Attempt::Held(holder) = two.obtain(&key("job")).await.unwrap() else {
        panic!("obtained twice")
    };

    assert_eq!((&holder.lessee, holder.token), (lease.lessee(), lease.token()));
    assert!(holder.expires_in.unwrap() <= TTL);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_is_free_at_once() {
    let locker = Locker::new(MemoryStore::new());
    let start = now();

    drop(obtained(&locker, "job").await);
    let second = locker.wait_until_obtained(&key("job")).await.unwrap();

    assert!(second.is_held());
    assert_eq!(now().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_come_in_order_and_one_of_them_contends() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let first = obtained(&locker, "job").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..64 {
        let (locker, order) = (locker.clone(), Arc::clone(&order));
        waiters.spawn(async move {
            let lease = locker.wait_until_obtained(&key("job")).await.unwrap();
            order.lock().unwrap().push(number);
            lease.release().await.unwrap();
        });
        yield_now().await;
    }
    let before = store.calls(Call::Obtain);
    sleep(Duration::from_secs(1)).await;
    assert!(store.calls(Call::Obtain) <= before + 1, "more than one contends");

    first.release().await.unwrap();
    waiters.join_all().await;

    assert_eq!(*order.lock().unwrap(), (0..64).collect::<Vec<_>>());
    assert!(store.calls(Call::Obtain) <= before + 66, "{}", store.calls(Call::Obtain));
}

#[tokio::test(start_paused = true)]
async fn any_of_many_keys_spreads_lessees_out() {
    let store = MemoryStore::new();
    let keys: Vec<_> = (0..8).map(|number| key(&format!("shard-{number}"))).collect();
    let lockers: Vec<_> = (0..8).map(|_| Locker::new(store.clone())).collect();

    let mut leases = Vec::new();
    for locker in &lockers {
        leases.push(locker.obtain_any(&keys).await.unwrap().unwrap());
    }

    let mut held: Vec<_> = leases.iter().map(Lease::key).cloned().collect();
    held.sort();
    assert_eq!(held, keys);
    assert!(lockers.first().unwrap().obtain_any(&keys).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_any_obtains_one_however_many_become_free() {
    let store = MemoryStore::new();
    let (holder, waiter) = (Locker::new(store.clone()), Locker::new(store.clone()));
    let keys = [key("a"), key("b"), key("c")];
    let mut held = Vec::new();
    for key in &keys {
        held.push(holder.obtain(key).await.unwrap().lease().unwrap());
    }

    let release = async {
        sleep(Duration::from_secs(5)).await;
        drop(held);
    };
    let (lease, ()) = tokio::join!(waiter.wait_until_any_obtained(&keys), release);
    let lease = lease.unwrap();
    waiter.close().await;

    for key in &keys {
        let holder = store.holder(key).await.unwrap();
        assert_eq!(holder.is_some(), key == lease.key(), "{key}");
    }
    let refused = waiter.wait_until_any_obtained(&[]).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_lease_runs_out_and_is_succeeded() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    let (token, cancelled, start) = (lease.token(), lease.cancelled_on_loss(), now());

    lease.abandon();
    assert!(cancelled.is_cancelled());
    let next = Locker::new(store.clone()).wait_until_obtained(&key("job")).await.unwrap();

    let took = now().since(start);
    assert!(next.token() > token);
    assert!(took >= TTL && took <= TTL + Duration::from_secs(1), "{took:?}");
    assert_eq!((store.calls(Call::Heartbeat), store.calls(Call::Release)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failing_heartbeat_is_a_risk_and_then_none() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let mut state = lease.state();
    assert_eq!(*state.borrow_and_update(), LeaseState::Held);

    store.next(Call::Heartbeat, Fault::Fail);
    state.changed().await.unwrap();
    assert_eq!(*state.borrow_and_update(), LeaseState::AtRisk);
    state.changed().await.unwrap();
    assert_eq!(*state.borrow_and_update(), LeaseState::Held);

    lease.release().await.unwrap();
    assert_eq!(*state.borrow_and_update(), LeaseState::Released);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_by_every_means() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let (state, cancelled) = (lease.state(), lease.cancelled_on_loss());
    store.every(Call::Heartbeat, Fault::Fail);
    let start = now();

    cancelled.cancelled().await;
    let wound_down = now().since(start);
    assert!(lease.is_held(), "the grace is for work that is still allowed");
    let lost = lease.lost().await;

    // A ttl less 1 % and 2 ms; the grace, a tenth of the ttl, before that.
    let deadline = Duration::from_millis(30_000 - 300 - 2);
    let within = |moment: Duration, expected: Duration| {
        moment >= expected && moment <= expected + Duration::from_millis(2)
    };
    assert!(within(wound_down + TTL / 10, deadline), "{wound_down:?}");
    assert!(within(now().since(start), deadline), "{:?}", now().since(start));
    assert_eq!(lost.cause, LossCause::Expired);
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(lease.cancelled_on_loss().is_cancelled());
    assert_eq!(
        lost.to_string(),
        format!("lease on job with token {} was lost: no heartbeat succeeded in time", lost.token),
    );
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost(LossCause::Expired));
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_at_the_loss_and_not_polled_again() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.every(Call::Heartbeat, Fault::Hang);
    let polls = AtomicUsize::new(0);

    let work = async {
        loop {
            polls.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
        }
    };
    let lost = lease.run_until_lost(work).await.unwrap_err();

    assert_eq!(lost.cause, LossCause::Expired);
    assert_eq!(polls.into_inner(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_holder_is_told_at_its_next_heartbeat() {
    use lease_core::LeaseTable;
    let store = MemoryStore::new();
    let lease = obtained(&Locker::new(store.clone()), "job").await;

    assert!(store.evict(lease.key(), lease.token()).await.unwrap());
    let lost = timeout(TTL / 3, lease.lost()).await.unwrap();

    assert_eq!(lost.cause, LossCause::Revoked);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_finds_its_lease_lost() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let locker = Locker::new(MemoryStore::new()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let lease = obtained(&locker, "job").await;
    assert!(lease.is_held());

    clock.leap(TTL);

    assert!(!lease.is_held());
    let told = tokio::select! { biased; lost = lease.lost() => Some(lost), () = async {} => None };
    assert!(told.is_some(), "not told at the first poll");
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_does_not_come_back() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let lease = obtained(&locker, "job").await;
    // The store extends the lease, but the reply comes when the deadline has passed here.
    store.next(Call::Heartbeat, Fault::DelayReply(Duration::from_secs(5)));
    sleep(Duration::from_secs(11)).await;
    clock.leap(TTL);

    sleep(TTL).await;

    assert!(!lease.is_held());
    assert_eq!(*lease.state().borrow(), LeaseState::Lost(LossCause::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_not_undone_by_a_heartbeat_on_its_way() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.next(Call::Heartbeat, Fault::DelayRequest(Duration::from_secs(2)));
    while store.calls(Call::Heartbeat) == 0 {
        sleep(Duration::from_millis(100)).await;
    }

    lease.release().await.unwrap();
    sleep(Duration::from_secs(5)).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_the_obtain_after_the_release_takes_nothing() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::Double(Duration::from_secs(1)));
    obtained(&locker, "job").await.release().await.unwrap();

    sleep(Duration::from_secs(2)).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_failed_after_it_was_applied_leaves_nothing_behind() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);

    let error = locker.obtain(&key("job")).await.unwrap_err();
    locker.close().await;

    assert!(error.is_retryable());
    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_a_store_that_did_not_answer() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.every(Call::Obtain, Fault::Hang);
    store.every(Call::Read, Fault::Hang);

    let error = locker.obtain(&key("job")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = locker.holder(&key("job")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    // What nobody can know any more is given up a ttl later.
    timeout(TTL * 2, locker.close()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_to_another_process_as_text() {
    let store = MemoryStore::new();
    let (from, to) = (Locker::new(store.clone()), Locker::new(store));
    let lease = obtained(&from, "job").await;
    let (token, cancelled) = (lease.token(), lease.cancelled_on_loss());

    let Handed::Over(handed) = lease.hand_over(Duration::from_mins(1)).await.unwrap() else {
        panic!("nobody else took it")
    };
    let text = handed.to_string();
    assert!(cancelled.is_cancelled());
    sleep(Duration::from_secs(50)).await;
    let resumed = to.resume(text.parse().unwrap()).await.unwrap().unwrap();

    assert!(resumed.token() > token && resumed.lessee() == to.lessee());
    assert!(from.resume(text.parse::<HandOver>().unwrap()).await.unwrap().is_none());
    sleep(TTL * 3).await;
    assert!(resumed.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_runs_out_and_bad_ones_are_refused() {
    let locker = Locker::new(MemoryStore::new());
    let lease = obtained(&locker, "job").await;
    let Handed::Over(handed) = lease.hand_over(Duration::from_secs(1)).await.unwrap() else {
        panic!("nobody else took it")
    };
    sleep(Duration::from_secs(2)).await;
    assert!(locker.resume(handed).await.unwrap().is_none());

    let refused = obtained(&locker, "job").await.hand_over(Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    for garbage in ["", "null", "{}", "{\"key\":\"\",\"lessee\":\"a\"}", "[1,2]"] {
        assert!(garbage.parse::<HandOver>().is_err(), "{garbage}");
    }
}

#[test]
fn a_locker_outside_a_runtime_says_so() {
    let locker = Locker::new(MemoryStore::new());
    let answer = futures_util::future::FutureExt::now_or_never(locker.obtain(&key("job")));
    assert_eq!(answer.unwrap().unwrap_err().kind(), StoreErrorKind::Misconfigured);
}

#[test]
fn a_locker_whose_runtime_has_ended_says_so_and_a_lease_dropped_then_is_silent() {
    let store = MemoryStore::new();
    let locker = Locker::new(store);
    let first = tokio::runtime::Runtime::new().unwrap();
    let lease = first.block_on(obtained(&locker, "job"));
    drop(first);

    assert!(!lease.is_held(), "nobody keeps it any more");
    drop(lease);
    let second = tokio::runtime::Runtime::new().unwrap();
    second.block_on(async {
        for error in [
            locker.obtain(&key("job")).await.map(drop).unwrap_err(),
            locker.wait_until_obtained(&key("job")).await.map(drop).unwrap_err(),
            locker.obtain_any(&[key("job")]).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        }
        locker.close().await;
    });
}

#[tokio::test(start_paused = true)]
async fn leases_obtained_together_do_not_beat_together() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let mut leases = Vec::new();
    for number in 0..1000 {
        leases.push(obtained(&locker, &format!("lease-{number}")).await);
    }

    let mut most = 0;
    for _ in 0..200 {
        let before = store.calls(Call::Heartbeat);
        sleep(Duration::from_millis(100)).await;
        most = most.max(store.calls(Call::Heartbeat) - before);
    }

    // 1,000 leases with a period of 10 s: 10 in each 100 ms on average, batches of 156 ms.
    assert!(most < 200, "{most} heartbeats within 100 ms");
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn what_happens_is_counted() {
    let counted = Arc::new(Counted::default());
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_metrics(Arc::clone(&counted) as Arc<dyn Metrics>);

    let lease = obtained(&locker, "job").await;
    sleep(TTL).await;
    lease.release().await.unwrap();
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::Fail);
    lease.lost().await;
    sleep(Duration::from_secs(1)).await;

    let counts = counted.0.lock().unwrap().clone();
    assert_eq!(counts.iter().filter(|what| **what == "obtained").count(), 2);
    assert_eq!(counts.iter().filter(|what| **what == "released").count(), 1);
    assert_eq!(counts.iter().filter(|what| **what == "lost").count(), 1);
    assert!(counts.iter().filter(|what| **what == "heartbeat").count() >= 3);
    assert!(counts.contains(&"heartbeat failed"));
}

#[derive(Debug, Default)]
struct Counted(Mutex<Vec<&'static str>>);

impl Metrics for Counted {
    fn obtained(&self, _key: &LeaseKey, _waited: Duration) {
        self.0.lock().unwrap().push("obtained");
    }

    fn heartbeat(&self, _key: &LeaseKey, _latency: Duration, margin: Duration) {
        assert!(margin > TTL / 2, "{margin:?}");
        self.0.lock().unwrap().push("heartbeat");
    }

    fn heartbeat_failed(&self, _key: &LeaseKey, _margin: Duration) {
        self.0.lock().unwrap().push("heartbeat failed");
    }

    fn released(&self, _key: &LeaseKey, held: Duration) {
        assert_eq!(held, TTL);
        self.0.lock().unwrap().push("released");
    }

    fn lost(&self, _key: &LeaseKey, _held: Duration, cause: LossCause) {
        assert_eq!(cause, LossCause::Expired);
        self.0.lock().unwrap().push("lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserved_key_is_kept_from_everybody_for_its_time() {
    let locker = Locker::new(MemoryStore::new());
    let start = now();
    let lease = obtained(&locker, "job").await;
    lease.release_reserved(Duration::from_secs(100)).await.unwrap();

    let next = locker.wait_until_obtained(&key("job")).await.unwrap();

    assert!(next.is_held());
    assert!(now().since(start) >= Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn records_that_nobody_needs_do_not_pile_up_and_tokens_still_grow() {
    let store = MemoryStore::counting_from_one();
    let locker = Locker::new(store.clone());
    let mut last: Option<FencingToken> = None;
    for number in 0..1000 {
        let lease = obtained(&locker, &format!("once-{number}")).await;
        lease.release().await.unwrap();
    }
    for _ in 0..5 {
        let lease = obtained(&locker, "again").await;
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        lease.release().await.unwrap();
        sleep(TTL * 3).await;
        assert!(store.records() <= 1, "{} records", store.records());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lockers_on_many_threads_hold_one_key_one_at_a_time() {
    let store = MemoryStore::new();
    let lockers: Vec<_> = (0..8).map(|_| Locker::new(store.clone())).collect();
    let inside = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut turns = JoinSet::new();
    for locker in lockers.iter().flat_map(|locker| (0..50).map(|_| locker.clone())) {
        let (inside, tokens) = (Arc::clone(&inside), Arc::clone(&tokens));
        turns.spawn(async move {
            let lease = locker.wait_until_obtained(&key("job")).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold one key");
            tokens.lock().unwrap().push(lease.token());
            yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
        });
    }

    timeout(Duration::from_mins(1), turns.join_all()).await.unwrap();

    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 400);
    assert!(tokens.is_sorted_by(|one, next| one < next));
}

#[tokio::test(start_paused = true)]
async fn options_of_one_locker_do_not_reach_another() {
    let store = MemoryStore::new();
    let usual = Locker::new(store);
    let short = usual.clone().with_options(LeaseOptions::new(Duration::from_secs(1)).unwrap());

    let lease = obtained(&short, "job").await;
    let other = obtained(&usual, "other").await;

    assert!(lease.remaining() < Duration::from_secs(1));
    assert!(other.remaining() > Duration::from_secs(29));
}

async fn obtained(locker: &Locker, name: &str) -> Lease {
    locker.obtain(&key(name)).await.unwrap().lease().unwrap()
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

fn now() -> lease_core::Moment {
    BootClock::new().now()
}
