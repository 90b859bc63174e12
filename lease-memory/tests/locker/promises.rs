//! Promises of the documentation about leases, hand-overs and metrics.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::SkewedClock;
use lease_core::store::Clock;
use lease_core::{HandOver, Handed, LeaseKey, Locker, LossCause, Metrics, Ttl};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{key, obtained};

#[tokio::test(start_paused = true)]
async fn work_completed_after_deadline_in_one_poll_is_lost() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let locker = Locker::new(MemoryStore::new()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let lease = obtained(&locker, "job").await;

    let outcome = lease.run_until_lost(async { clock.leap(lease.remaining()) }).await;

    assert_eq!(outcome.unwrap_err().cause, LossCause::Expired);
}

#[tokio::test(start_paused = true)]
async fn loss_is_visible_within_a_second_after_suspend() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let heartbeater = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let locker = Locker::new(MemoryStore::new())
        .with_clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .with_runtime(heartbeater.handle().clone());
    // The heartbeater's runtime runs only for the grant. Later, only the lease's own timer can detect the
    // loss.
    let lease = std::thread::scope(|scope| {
        scope.spawn(|| heartbeater.block_on(obtained(&locker, "job"))).join().unwrap()
    });
    // The wait runs in a separate task, so that only the lease's own timer makes this task read the clock.
    let noticing = tokio::spawn({
        let clock = Arc::clone(&clock);
        async move {
            lease.lost().await;
            clock.now()
        }
    });
    sleep(Duration::from_millis(10)).await;
    clock.leap(locker.options().ttl());
    let over = clock.now();
    let noticed = noticing.await.unwrap();

    assert!(noticed.since(over) <= Duration::from_secs(1), "{:?}", noticed.since(over));
    // tokio does not allow dropping a runtime within another runtime.
    std::thread::spawn(move || drop(heartbeater)).join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn hand_over_survives_format_without_field_names() {
    let store = MemoryStore::new();
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let Handed::Over(handed) =
        lease.hand_over(Ttl::clamped(Duration::from_secs(10))).await.unwrap()
    else {
        panic!("the lease was held")
    };

    let bytes = postcard::to_stdvec(&handed).unwrap();
    let received: HandOver = postcard::from_bytes(&bytes).unwrap();

    assert_eq!(received, handed);
    assert_eq!(handed.to_string().parse::<HandOver>().unwrap(), handed);
    assert!(handed.to_string().starts_with(r#"{"key":"job","#), "{handed}");
    assert!(Locker::new(store).resume(received).await.unwrap().is_some());
}

#[derive(Debug)]
struct Panicking;

#[expect(clippy::panic, reason = "the fault under test")]
impl Metrics for Panicking {
    fn obtained(&self, _key: &LeaseKey, _waited: Duration) {
        panic!("a bug of the application");
    }

    fn heartbeat(&self, _: &LeaseKey, _: Duration, _margin: Duration, _: Duration) {
        panic!("a bug of the application");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_metrics_keep_lease() {
    let locker = Locker::new(MemoryStore::new()).with_metrics(Arc::new(Panicking));
    let lease = obtained(&locker, "job").await;

    sleep(locker.options().ttl() * 2).await;

    assert!(lease.is_held());
    assert!(locker.obtain(&key("other")).await.unwrap().into_lease().is_some());
}
