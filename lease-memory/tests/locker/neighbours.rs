//! Tasks of the application that keep the runtime busy beside the heartbeater.

use std::hint::spin_loop;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lease_core::{BootClock, Clock, Lease, LeaseOptions, Locker};
use lease_memory::MemoryStore;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::obtained;

/// Two tasks that pass one item to each other for `length`. Each spends `turn` on it.
async fn busy_neighbours(length: Duration, turn: impl Fn() + Copy + Send + 'static) {
    let until = BootClock::new().now() + length;
    let (to_first, first) = mpsc::unbounded_channel();
    let (to_second, second) = mpsc::unbounded_channel();
    to_first.send(()).unwrap();
    let pass = move |mut from: mpsc::UnboundedReceiver<()>, to: mpsc::UnboundedSender<()>| {
        tokio::spawn(async move {
            while BootClock::new().now() < until && from.recv().await.is_some() {
                turn();
                // The other may have ended.
                let _ = to.send(());
            }
        })
    };
    let (one, other) = (pass(first, to_second), pass(second, to_first));
    one.await.unwrap();
    other.await.unwrap();
}

/// Leases of 1 s, with `pause` from one grant to the next.
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
    // Spread over a period, so that some heartbeat is due at every moment.
    let leases = leases(Some(Duration::from_millis(333) / 2_000)).await;

    // Polled once, it moves the paused clock: a turn takes 1 ms whatever the machine does.
    let turn = || {
        let _ = tokio::time::advance(Duration::from_millis(1)).now_or_never();
    };
    join_all((0..8).map(|_| busy_neighbours(Duration::from_secs(5), turn))).await;

    assert_eq!(held(&leases), LEASES);
}

fn spin(length: Duration) {
    let until = BootClock::new().now() + length;
    while BootClock::new().now() < until {
        spin_loop();
    }
}

#[test]
#[ignore = "takes a minute of real time on an otherwise idle machine"]
fn leases_of_1_s_outlive_a_minute_of_turns_of_1_ms_on_one_thread() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let leases = leases(None).await;
        busy_neighbours(Duration::from_secs(60), || spin(Duration::from_millis(1))).await;
        assert_eq!(held(&leases), LEASES);
    });
}

#[test]
#[ignore = "takes a minute of real time on an otherwise idle machine"]
fn leases_of_1_s_outlive_a_minute_of_turns_of_1_ms_on_two_workers() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let leases = tokio::spawn(leases(None)).await.unwrap();
        // As many at work as there are workers.
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
