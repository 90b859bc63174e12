//! Measures how often contenders obtain a quorum's key, with and without hung nodes.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement prints its results")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{BootClock, Claim, Clock, LockStore, Nonce, Obtained};
use lease_core::{LeaseKey, LeaseOptions, Lessee, Locker};
use lease_redis::RedisQuorum;
use lease_test_servers::redis::{RedisServer, available, independent};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Healthy nodes and hung nodes take turns.
///
/// `cargo test --release -p lease-redis --all-features --test contention -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: it needs an idle machine"]
async fn rates_of_waiting_contenders_with_a_hung_minority() {
    if !available() {
        return;
    }
    println!(
        "| nodes | hung | contenders | healthy/s | hung/s | ratio |\n|--:|--:|--:|--:|--:|--:|"
    );
    for (nodes, hung) in [(3, 1), (5, 1), (5, 2)] {
        for contenders in [2, 5, 20] {
            let servers = independent(nodes);
            let fleet = Fleet::waiting(&servers, contenders).await;
            let (mut healthy, mut with_hung) = (0.0, 0.0);
            for _ in 0..TURNS {
                healthy += fleet.rate().await;
                servers[..hung].iter().for_each(RedisServer::hang);
                with_hung += fleet.rate().await;
                servers[..hung].iter().for_each(RedisServer::go_on);
            }
            let (healthy, with_hung) = (healthy / f64::from(TURNS), with_hung / f64::from(TURNS));
            let ratio = with_hung / healthy;
            println!(
                "| {nodes} | {hung} | {contenders} | {healthy:.0} | {with_hung:.0} | {ratio:.2} |"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: it needs an idle machine"]
async fn rates_of_contenders_that_call_obtain_in_a_loop() {
    if !available() {
        return;
    }
    println!("| nodes | contenders | grants/s |\n|--:|--:|--:|");
    for contenders in [2, 5, 20, 50] {
        let servers = independent(5);
        let fleet = Fleet::direct(&servers, contenders).await;
        println!("| 5 | {contenders} | {:.0} |", fleet.rate().await);
    }
}

/// Each contender has its own connections, like a process.
struct Fleet {
    grants: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Fleet {
    async fn waiting(servers: &[RedisServer], contenders: usize) -> Self {
        Self::of(servers, contenders, async |store, grants| {
            let locker = Locker::new(store).with_options(LeaseOptions::new(TTL).unwrap());
            loop {
                let Ok(lease) = locker.wait_until_obtained(&key()).await else { continue };
                grants.fetch_add(1, Ordering::Relaxed);
                drop(lease.release().await);
            }
        })
        .await
    }

    async fn direct(servers: &[RedisServer], contenders: usize) -> Self {
        Self::of(servers, contenders, async |store, grants| {
            loop {
                let lessee = Lessee::new("direct").unwrap();
                let claim = Claim::new(key(), lessee, Nonce::random(), TTL);
                if let Ok(Obtained::Granted(grant, _)) = store.obtain(&claim).await {
                    grants.fetch_add(1, Ordering::Relaxed);
                    drop(store.release(&grant, None).await);
                }
            }
        })
        .await
    }

    async fn of<F>(
        servers: &[RedisServer],
        contenders: usize,
        contend: impl Fn(RedisQuorum, Arc<AtomicU64>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let grants = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..contenders {
            let urls = servers.iter().map(RedisServer::url);
            let store = RedisQuorum::builder(urls).without_rejoin_delay().connect().await.unwrap();
            tasks.spawn(contend(store, Arc::clone(&grants)));
        }
        Self { grants, _tasks: tasks }
    }

    async fn rate(&self) -> f64 {
        sleep(SETTLING).await;
        let clock = BootClock::new();
        let (began, before) = (clock.now(), self.grants.load(Ordering::Relaxed));
        sleep(TURN).await;
        let granted = self.grants.load(Ordering::Relaxed) - before;
        #[expect(clippy::cast_precision_loss, reason = "the count is in the thousands")]
        let granted = granted as f64;
        granted / clock.now().since(began).as_secs_f64()
    }
}

fn key() -> LeaseKey {
    "contended".parse().unwrap()
}

const TTL: Duration = Duration::from_secs(30);

const TURNS: u32 = 2;

const TURN: Duration = Duration::from_secs(3);

const SETTLING: Duration = Duration::from_secs(1);
