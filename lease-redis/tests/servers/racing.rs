//! Waiters that race for the key of a quorum: attempts and times of hand-overs.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Faulty};
use lease_core::store::{BootClock, Clock};
use lease_core::{Lease, LeaseOptions, Locker};
use lease_redis::RedisQuorum;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::{PATIENT, RedisServer};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::setting::{eventually, key, servers, urls};

#[derive(Debug)]
struct Figures {
    attempts: f64,
    times: Vec<Duration>,
}

async fn hand_overs(urls: Vec<String>, waiters: usize, rounds: usize, hold: Duration) -> Figures {
    let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
    let connect = async || {
        let builder = RedisQuorum::builder(urls.clone()).without_rejoin_delay();
        Faulty::new(builder.with_timeout(PATIENT).connect().await.unwrap())
    };
    let holder = Locker::new(connect().await).with_options(options.clone());
    let held = holder.wait_until_obtained(&key()).await.unwrap();
    let clock = BootClock::new();
    let released = Arc::new(Mutex::new(clock.now()));
    let times = Arc::new(Mutex::new(Vec::new()));
    let (mut tasks, mut stores) = (JoinSet::new(), Vec::new());
    for _ in 0..waiters {
        let store = connect().await;
        let locker = Locker::new(store.clone()).with_options(options.clone());
        stores.push(store);
        let (released, times) = (Arc::clone(&released), Arc::clone(&times));
        tasks.spawn(async move {
            for _ in 0..rounds {
                let lease: Lease = locker.wait_until_obtained(&key()).await.unwrap();
                times.lock().push(clock.now().since(*released.lock()));
                sleep(hold).await;
                *released.lock() = clock.now();
                lease.release().await.unwrap();
            }
        });
    }
    // A locker makes its second attempt after it has registered its watch.
    let all_wait = || stores.iter().all(|store| store.calls(Call::Obtain) >= 2);
    eventually("all wait", async || all_wait().then_some(())).await;
    let attempts = || stores.iter().map(|store| store.calls(Call::Obtain)).sum::<usize>();
    let before = attempts();

    *released.lock() = clock.now();
    held.release().await.unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }

    let mut times = std::mem::take(&mut *times.lock());
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "the counts are small")]
    let attempts = (attempts() - before) as f64 / times.len() as f64;
    let figures = Figures { attempts, times };
    println!(
        "{waiters} waiters, {rounds} rounds, held for {hold:?}: {attempts:.2} attempts each, p50 {:?}, \
         p90 {:?}, p99 {:?}",
        figures.part(0.5),
        figures.part(0.9),
        figures.part(0.99),
    );
    figures
}

impl Figures {
    fn part(&self, part: f64) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the counts are small"
        )]
        let place = (self.times.len() as f64 * part) as usize;
        self.times[place.min(self.times.len() - 1)]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_over_of_a_quorum_takes_few_attempts_however_many_wait() {
    let Some(nodes) = servers::<3>() else { return };

    let figures = hand_overs(urls(&nodes), 64, 1, Duration::from_millis(20)).await;

    assert!(figures.attempts < 3.0, "{}", figures.attempts);
}

/// `cargo test --release -p lease-redis --all-features --test servers -- --ignored --nocapture racing`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: it needs an idle machine"]
async fn time_from_release_to_grant_of_racing_waiters() {
    let Some(nodes) = servers::<3>() else { return };
    for (waiters, rounds) in [(1, 100), (2, 50), (8, 16), (64, 2)] {
        for hold in [0, 20, 100].map(Duration::from_millis) {
            hand_overs(urls(&nodes), waiters, rounds, hold).await;
        }
    }
    println!("10 ms away:");
    let links = async |nodes: &[RedisServer]| {
        let mut links = Vec::new();
        for node in nodes {
            let away = Duration::from_millis(10);
            links.push(Link::with_latency(node.address(), away).await.unwrap());
        }
        links
    };
    let links = links(&nodes).await;
    for (waiters, rounds) in [(1, 50), (8, 8), (64, 1)] {
        let urls = links.iter().map(Link::url).collect();
        hand_overs(urls, waiters, rounds, Duration::from_millis(20)).await;
    }
}
