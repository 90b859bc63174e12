//! Stores that misbehave in ways that networks do not, and moments that fall badly.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{
    Beat, BootClock, Claim, Clock, Freed, Grant, Handed, Heartbeat, Holder, Lease, LeaseKey,
    LeaseOptions, LeaseState, LockStore, Locker, LossCause, Metrics, Obtained, SkewedClock,
    StoreError, StoreErrorKind,
};
use lease_memory::MemoryStore;
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn work_has_stopped_before_a_hand_over_can_be_taken_up_or_run_out() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let work = lease.cancelled_on_loss();
    let state = lease.state();
    store.next(Call::Heartbeat, Fault::HangReply);

    let handing = tokio::spawn(lease.hand_over(Duration::from_millis(500)));
    let _next = soon(Locker::new(store.inner()).wait_until_obtained(&key("job"))).await.unwrap();

    assert!(work.is_cancelled());
    assert_eq!(*state.borrow(), LeaseState::Released);
    // The store says at the next try that it is too late.
    let handed = soon(handing).await.unwrap().unwrap();
    assert!(matches!(handed, Handed::AlreadyLost(_)), "{handed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_whose_answer_comes_too_late_is_none() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.next(Call::Heartbeat, Fault::DelayReply(Duration::from_secs(2)));

    let handed = lease.hand_over(Duration::from_millis(500)).await.unwrap();

    assert_eq!(handed, Handed::AlreadyLost(LossCause::Expired));
}

/// In real time, with a thread that was busy while a heartbeat fell due.
#[tokio::test]
async fn no_heartbeat_comes_after_the_one_that_hands_over() {
    let store = MemoryStore::new();
    let options = LeaseOptions::new(Duration::from_secs(2)).unwrap();
    let locker = Locker::new(store.clone()).with_options(options);
    let lease = obtained(&locker, "job").await;
    tokio::task::yield_now().await;
    // The first heartbeat falls due after 633 ms at the latest; the lease lasts for 2 s.
    std::thread::sleep(Duration::from_millis(700));

    let handed = lease.hand_over(Duration::from_mins(1)).await.unwrap();
    sleep(Duration::from_millis(20)).await;

    assert!(matches!(handed, Handed::Over(_)), "{handed:?}");
    let left = store.holder(&key("job")).await.unwrap().unwrap().expires_in.unwrap();
    assert!(left > Duration::from_secs(50), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_survives_a_resume_that_failed() {
    for fault in [Fault::Fail, Fault::LoseReply] {
        let store = Faulty::new(MemoryStore::new());
        let (from, to) = (Locker::new(store.clone()), Locker::new(store.clone()));
        let lease = obtained(&from, "job").await;
        let Handed::Over(handed) = lease.hand_over(Duration::from_mins(10)).await.unwrap() else {
            panic!("nobody else took it")
        };

        store.next(Call::Adopt, fault);
        assert!(to.resume(handed.clone()).await.is_err());
        sleep(Duration::from_secs(2)).await;
        let resumed = to.resume(handed).await.unwrap();

        assert!(resumed.is_some_and(|lease| lease.is_held()), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_hand_over_is_given_back_however_long_it_was_to_be() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::LoseReply);
    store.every(Call::Release, Fault::Fail);

    assert!(lease.hand_over(Duration::from_hours(1)).await.is_err());
    sleep(TTL * 2).await;
    store.heal();
    soon(locker.close()).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_goes_on_with_the_claim_of_the_one_that_failed() {
    let store = Faulty::new(MemoryStore::counting_from_one());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);

    assert!(locker.obtain(&key("job")).await.is_err());
    let lease = obtained(&locker, "job").await;

    assert_eq!(lease.token().get(), 1, "it was granted twice");
    sleep(TTL).await;
    assert!(lease.is_held());
    assert_eq!(store.calls(Call::Obtain), 2);
}

#[tokio::test(start_paused = true)]
async fn attempts_on_a_store_that_is_down_do_not_pile_up() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.every(Call::Obtain, Fault::Fail);
    for _ in 0..200 {
        assert!(locker.obtain(&key("job")).await.is_err());
        sleep(Duration::from_millis(100)).await;
    }
    let asked = store.calls(Call::Obtain);
    assert!(asked <= 210, "{asked} requests for 200 attempts");

    store.heal();
    let lease = obtained(&locker, "job").await;
    assert!(lease.is_held(), "held by an attempt that nobody waits for");
}

/// Fails at the first claim, hangs at the second, and counts how many it is asked at once.
#[derive(Debug, Default)]
struct Reluctant {
    store: MemoryStore,
    asked: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl LockStore for Reluctant {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        struct Asking<'a>(&'a AtomicUsize);
        impl Drop for Asking<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }

        let at_once = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        let _asking = Asking(&self.now);
        self.most.fetch_max(at_once, Ordering::SeqCst);
        match self.asked.fetch_add(1, Ordering::SeqCst) {
            0 => Err(StoreError::new(StoreErrorKind::Unavailable, "not yet")),
            1 => pending().await,
            _ => self.store.obtain(claim).await,
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }
}

/// A request that fails may take back what it was granted; on a quorum, that was what the other
/// request for the same claim had just been told.
#[tokio::test(start_paused = true)]
async fn who_clears_up_no_longer_asks_once_another_attempt_goes_on_with_the_claim() {
    let store = Arc::new(Reluctant::default());
    let locker = Locker::new(Arc::clone(&store));
    assert!(locker.obtain(&key("job")).await.is_err());
    sleep(TTL / 10).await;
    assert_eq!(store.asked.load(Ordering::SeqCst), 2, "nobody clears up");

    let lease = obtained(&locker, "job").await;

    assert!(lease.is_held());
    assert_eq!(store.most.load(Ordering::SeqCst), 1, "asked twice at once");
}

/// Answers whatever it was made to answer.
struct Odd<O, W>(MemoryStore, AtomicUsize, O, W);

impl<O, W> fmt::Debug for Odd<O, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

#[async_trait]
impl<O, W> LockStore for Odd<O, W>
where
    O: Fn() -> Option<Duration> + Send + Sync + 'static,
    W: Fn() -> Freed + Send + Sync + 'static,
{
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let token = lease_core::FencingToken::new(1).unwrap();
        Ok(Obtained::Held(Holder::new(claim.lessee.clone(), token, (self.2)())))
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.0.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.0.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.0.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.0.holder(key).await
    }

    async fn watch(&self, _key: &LeaseKey) -> Result<Freed, StoreError> {
        Ok((self.3)())
    }
}

async fn requests_in_ten_seconds<O, W>(expires_in: O, watch: W) -> usize
where
    O: Fn() -> Option<Duration> + Send + Sync + 'static,
    W: Fn() -> Freed + Send + Sync + 'static,
{
    let store = Arc::new(Odd(MemoryStore::new(), AtomicUsize::new(0), expires_in, watch));
    let locker = Locker::new(Arc::clone(&store));
    let waited = timeout(Duration::from_secs(10), locker.wait_until_obtained(&key("job"))).await;
    assert!(waited.is_err());
    store.1.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_hammer_a_store() {
    let never = || Freed::never();
    let at_once = || Freed::when(ready(()));

    let run_out = requests_in_ten_seconds(|| Some(Duration::ZERO), never).await;
    let for_ever = requests_in_ten_seconds(|| Some(Duration::MAX), never).await;
    let silent = requests_in_ten_seconds(|| None, never).await;
    let woken_for_nothing = requests_in_ten_seconds(|| Some(TTL), at_once).await;

    for requests in [run_out, for_ever, silent] {
        assert!((6..=20).contains(&requests), "{requests} requests, polled about once a second");
    }
    assert!(woken_for_nothing < 100, "{woken_for_nothing} requests");
}

/// Passes on to the memory store, but for the keys that begin with `hang`.
#[derive(Debug, Clone)]
struct PartlyHanging(MemoryStore);

async fn hangs(key: &LeaseKey) {
    if key.as_str().starts_with("hang") {
        pending::<()>().await;
    }
}

#[async_trait]
impl LockStore for PartlyHanging {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        if claim.key.as_str() == "hang/obtain" {
            pending::<()>().await;
        }
        self.0.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        hangs(&grant.key).await;
        self.0.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        if grant.key.as_str() == "slow release" {
            sleep(Duration::from_secs(1)).await;
        }
        self.0.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.0.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.0.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        hangs(key).await;
        self.0.watch(key).await
    }

    fn grain(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[derive(Debug, Default)]
struct LeastMargin(std::sync::Mutex<Option<Duration>>);

impl Metrics for LeastMargin {
    fn heartbeat(&self, _key: &LeaseKey, _latency: Duration, margin: Duration) {
        let mut least = self.0.lock().unwrap();
        *least = Some(least.map_or(margin, |least| least.min(margin)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_the_store_that_hangs_delays_no_other_lease() {
    let least = Arc::new(LeastMargin::default());
    let locker = Locker::new(PartlyHanging(MemoryStore::new()))
        .with_metrics(Arc::clone(&least) as Arc<dyn Metrics>);
    // More than may be on their way at once.
    let mut hanging = Vec::new();
    for number in 0..10_000 {
        hanging.push(obtained(&locker, &format!("hang/{number}")).await);
    }
    let mut others = Vec::new();
    for number in 0..100 {
        others.push(obtained(&locker, &format!("other/{number}")).await);
    }

    sleep(TTL * 3).await;

    assert!(hanging.iter().all(|lease| !lease.is_held()));
    assert!(others.iter().all(Lease::is_held));
    // Of 24.7 s that are trusted, with a grain of 5 s, a period is 10 s.
    let least = least.0.lock().unwrap().unwrap();
    assert!(least > Duration::from_secs(12), "{least:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_with_a_coarse_clock_is_trusted_for_less() {
    let locker = Locker::new(PartlyHanging(MemoryStore::new()));
    assert!(
        obtained(&locker, "job").await.remaining() <= TTL.saturating_sub(Duration::from_secs(5))
    );

    let short = locker.with_options(LeaseOptions::new(Duration::from_secs(5)).unwrap());
    let error = short.obtain(&key("short")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn one_key_that_hangs_does_not_keep_another_from_being_obtained() {
    for seed in 0..20 {
        let locker = Locker::new(PartlyHanging(MemoryStore::new())).with_seed(seed);
        let keys = [key("hang/obtain"), key("free")];
        let start = BootClock::new().now();

        let lease = soon(locker.wait_until_any_obtained(&keys)).await.unwrap();

        assert_eq!(lease.key().as_str(), "free");
        let took = BootClock::new().now().since(start);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_in_line_waits_until_the_store_has_been_told_of_the_release() {
    let store = Faulty::new(PartlyHanging(MemoryStore::new()));
    let locker = Locker::new(store.clone());
    let first = locker.wait_until_obtained(&key("slow release")).await.unwrap();
    let waiting = tokio::spawn({
        let locker = locker.clone();
        async move { locker.wait_until_obtained(&key("slow release")).await }
    });
    tokio::task::yield_now().await;

    drop(first);
    let second = soon(waiting).await.unwrap().unwrap();

    assert!(second.is_held());
    assert_eq!(store.calls(Call::Obtain), 2, "an attempt was made in vain");
}

#[tokio::test(start_paused = true)]
async fn work_that_wakes_by_itself_is_not_polled_after_the_clock_has_leapt() {
    let (clock, locker) = leaping();
    let lease = obtained(&locker, "job").await;
    let polls = AtomicUsize::new(0);

    let work = async {
        polls.fetch_add(1, Ordering::SeqCst);
        clock.leap(TTL);
        // Ready at once: only the lease's own look at the clock comes between.
        tokio::task::yield_now().await;
        polls.fetch_add(1, Ordering::SeqCst);
    };
    let lost = lease.run_until_lost(work).await.unwrap_err();

    assert_eq!((lost.cause, polls.into_inner()), (LossCause::Expired, 1));
}

#[tokio::test(start_paused = true)]
async fn the_heartbeater_looks_up_although_its_timers_were_asleep() {
    let (clock, locker) = leaping();
    let lease = obtained(&locker, "job").await;
    let mut state = lease.state();
    tokio::task::yield_now().await;

    clock.leap(TTL);
    let told = timeout(Duration::from_secs(2), state.changed()).await;

    assert!(told.is_ok(), "not looked up within 2 s of waking");
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
}

/// In real time: the heartbeater's runtime is held up, the holder's is not.
#[test]
fn a_loss_is_told_although_the_heartbeater_is_held_up() {
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let here = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    here.block_on(async {
        let options = LeaseOptions::new(Duration::from_millis(300)).unwrap();
        let locker = Locker::new(MemoryStore::new())
            .with_options(options)
            .with_runtime(elsewhere.handle().clone());
        let lease = obtained(&locker, "job").await;
        elsewhere.spawn(async move {
            let _unblocked = blocked.recv();
        });

        let lost = timeout(Duration::from_secs(20), lease.lost()).await;

        assert_eq!(lost.unwrap().cause, LossCause::Expired);
    });
    unblock.send(()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_was_dropped_and_not_for_what_others_do() {
    let locker = Locker::new(MemoryStore::new());
    let busy = tokio::spawn({
        let locker = locker.clone();
        async move {
            loop {
                drop(locker.obtain(&key("busy")).await.unwrap());
                tokio::task::yield_now().await;
            }
        }
    });
    drop(obtained(&locker, "job").await);

    soon(locker.close()).await;

    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_release_of_what_was_lost_answers_at_once() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.choose(|_| Some(Fault::Hang));
    lease.lost().await;
    let start = BootClock::new().now();

    lease.release().await.unwrap();

    assert_eq!(BootClock::new().now().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn lengths_without_bounds_are_refused_or_borne() {
    let locker = Locker::new(MemoryStore::new());
    let refused = obtained(&locker, "job").await.release_reserved(Duration::MAX).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    locker.close().await;
    assert!(locker.obtain(&key("job")).await.unwrap().lease().is_some());

    let options = LeaseOptions::default();
    assert_eq!(options.trusted(TTL, Duration::MAX), Duration::ZERO);
    assert!(options.trusted(Duration::MAX, Duration::ZERO) > TTL);
}

fn leaping() -> (Arc<SkewedClock>, Locker) {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let shared = Arc::clone(&clock) as Arc<dyn Clock>;
    (clock, Locker::new(MemoryStore::new()).with_clock(shared))
}

async fn obtained(locker: &Locker, name: &str) -> Lease {
    locker.obtain(&key(name)).await.unwrap().lease().unwrap()
}

/// What must come, within a bound that nothing comes near.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(TTL * 20, what).await.unwrap()
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}
