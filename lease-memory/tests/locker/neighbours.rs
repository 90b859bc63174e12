//! The heartbeater beside busy tasks of the application.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lease_core::store::{BootClock, Clock, Moment};
use lease_core::{Lease, LeaseOptions, Locker};
use lease_memory::MemoryStore;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::obtained;

/// For `length`, two tasks pass one item to each other. Each task calls `turn` when it receives the item.
async fn busy_neighbours(length: Duration, turn: impl Fn() + Copy + Send + 'static) {
    let until = BootClock::new().now() + length;
    let (to_first, first) = mpsc::unbounded_channel();
    let (to_second, second) = mpsc::unbounded_channel();
    to_first.send(()).unwrap();
    let pass = move |mut from: mpsc::UnboundedReceiver<()>, to: mpsc::UnboundedSender<()>| {
        tokio::spawn(async move {
            while BootClock::new().now() < until && from.recv().await.is_some() {
                turn();
                let _ = to.send(());
            }
        })
    };
    let (one, other) = (pass(first, to_second), pass(second, to_first));
    one.await.unwrap();
    other.await.unwrap();
}

async fn leases(pause: Option<Duration>) -> Vec<Lease> {
    let options = LeaseOptions::new(Duration::from_secs(1)).unwrap();
    let locker = Locker::new(MemoryStore::new()).with_options(options);
    let mut leases = Vec::new();
    for number in 0..LEASES {
        leases.push(obtained(&locker, &format!("{number}")).await);
        if let Some(pause) = pause {
            tokio::time::advance(pause).await;
        }
    }
    leases
}

fn held(leases: &[Lease]) -> usize {
    leases.iter().filter(|lease| lease.is_held()).count()
}

#[tokio::test(start_paused = true)]
async fn heartbeats_beside_busy_tasks_keep_all_leases() {
    // The grants are spread over a period, so that heartbeats are due all the time.
    let leases = leases(Some(Duration::from_millis(333) / 2_000)).await;

    // Each poll advances the paused clock by 1 ms, on every machine.
    let turn = || {
        let _ = tokio::time::advance(Duration::from_millis(1)).now_or_never();
    };
    join_all((0..8).map(|_| busy_neighbours(Duration::from_secs(5), turn))).await;

    assert_eq!(held(&leases), LEASES);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_do_not_rely_on_late_timers() {
    let leases = leases(None).await;
    let clock = BootClock::new();
    let start = clock.now();

    // tokio polls timers once in 61 turns. After 2 s, a turn takes 20 ms, so tokio polls timers
    // every 1.2 s.
    let turn = move || {
        let is_long = clock.now().since(start) > Duration::from_secs(2);
        let length = Duration::from_millis(if is_long { 20 } else { 5 });
        let _ = tokio::time::advance(length).now_or_never();
    };
    busy_neighbours(Duration::from_secs(10), turn).await;

    assert_eq!(held(&leases), LEASES);
}

#[tokio::test(start_paused = true)]
async fn heartbeater_sleeps_once_busy_tasks_end() {
    let clock = Arc::new(CountedClock::default());
    let options = LeaseOptions::new(Duration::from_secs(1)).unwrap();
    let own_clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let locker = Locker::new(MemoryStore::new()).with_options(options).with_clock(own_clock);
    let lease = obtained(&locker, "key").await;
    let turn = || {
        let _ = tokio::time::advance(Duration::from_millis(5)).now_or_never();
    };
    busy_neighbours(Duration::from_secs(5), turn).await;
    let busy = clock.looks.swap(0, Ordering::Relaxed);

    tokio::time::sleep(Duration::from_secs(5)).await;

    // The heartbeater reads the clock in each of 1,000 busy turns, and later only for about 20
    // heartbeats.
    let idle = clock.looks.load(Ordering::Relaxed);
    assert!(lease.is_held() && idle * 5 < busy, "{idle} clock reads when idle, {busy} when busy");
}

/// Panics if a task spins, because paused time would then stand still.
#[derive(Debug, Default)]
struct CountedClock {
    looks: AtomicU64,
}

impl Clock for CountedClock {
    fn now(&self) -> Moment {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        assert_ne!(looks, 1_000_000, "a task spins");
        BootClock::new().now()
    }
}

fn spin(length: Duration) {
    let until = BootClock::new().now() + length;
    while BootClock::new().now() < until {
        spin_loop();
    }
}

#[test]
#[ignore = "takes a minute of real time on an otherwise idle machine"]
fn leases_of_1_s_survive_a_minute_of_1_ms_turns_on_one_thread() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let leases = leases(None).await;
        busy_neighbours(Duration::from_secs(60), || spin(Duration::from_millis(1))).await;
        assert_eq!(held(&leases), LEASES);
    });
}

#[test]
#[ignore = "takes a minute of real time on an otherwise idle machine"]
fn leases_of_1_s_survive_a_minute_of_1_ms_turns_on_two_workers() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let leases = tokio::spawn(leases(None)).await.unwrap();
        let turn = || spin(Duration::from_millis(1));
        let minute = Duration::from_secs(60);
        let pairs = [(); 2].map(|()| tokio::spawn(busy_neighbours(minute, turn)));
        for pair in pairs {
            pair.await.unwrap();
        }
        assert_eq!(held(&leases), LEASES);
    });
}

const LEASES: usize = 2_000;
