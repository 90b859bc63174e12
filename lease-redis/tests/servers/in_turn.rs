//! Waiting in turn: the order of grants, dead and cancelled waiters, and the number of requests.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{BootClock, Clock, Enqueued, InTurn, LockStore, Notice};
use lease_core::{Lease, LeaseOptions, Locker};
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, soon};
use lease_test_servers::proxy::{Link, Proxy, Wire};
use lease_test_servers::redis::{PATIENT, RedisServer};
use parking_lot::Mutex;
use tokio::process::Command;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::batches::Monitor;
use crate::setting::{TTL, claim, eventually, key, lease, locker, obtain, one, one_at, servers};

pub(crate) fn queued(server: &RedisServer) -> usize {
    server.command("LLEN lease:{job}:queue").trim().parse().unwrap()
}

async fn until_queued(server: &RedisServer, count: usize) {
    eventually("the waiters are queued", async || (queued(server) == count).then_some(())).await;
}

pub(crate) fn places(store: &RedisStore) -> &dyn InTurn {
    store.in_turn().unwrap()
}

/// Each locker has its own connections. `order` lists the lockers as they obtain the key.
struct Waiters {
    order: Arc<Mutex<Vec<usize>>>,
    tasks: JoinSet<()>,
}

impl Waiters {
    fn new() -> Self {
        Self { order: Arc::default(), tasks: JoinSet::new() }
    }

    fn add(&mut self, name: usize, locker: Locker, rounds: usize) -> tokio::task::AbortHandle {
        let order = Arc::clone(&self.order);
        self.tasks.spawn(async move {
            for _ in 0..rounds {
                let lease = locker.wait_until_obtained(&key()).await.unwrap();
                order.lock().push(name);
                lease.release().await.unwrap();
            }
        })
    }

    async fn all(mut self) -> Vec<usize> {
        while let Some(ended) = soon(self.tasks.join_next()).await {
            if let Err(error) = ended {
                assert!(error.is_cancelled(), "{error}");
            }
        }
        std::mem::take(&mut *self.order.lock())
    }
}

#[derive(Default)]
struct Order {
    joined: Vec<String>,
    granted: Vec<String>,
}

impl Order {
    async fn watch(server: &RedisServer) -> JoinHandle<Self> {
        let mut monitor = Monitor::start(server).await;
        tokio::spawn(async move {
            let mut order = Self::default();
            loop {
                let command = monitor.next().await;
                if command.contains(LAST) {
                    return order;
                }
                order.note(&command);
            }
        })
    }

    async fn at_the_end(server: &RedisServer, watching: JoinHandle<Self>) -> Self {
        server.command(&format!("SET last {LAST}"));
        soon(watching).await.unwrap()
    }

    fn note(&mut self, command: &str) {
        let words: Vec<_> = command.split(' ').map(|word| word.trim_matches('"')).collect();
        match words[..] {
            ["lua", "RPUSH", _, nonce] => self.joined.push(nonce.to_owned()),
            ["lua", "PUBLISH", channel, nonce, ..] if channel.contains(":grants:") => {
                self.granted.push(nonce.to_owned());
            }
            _ => (),
        }
    }
}

#[tokio::test]
async fn twenty_waiters_obtain_the_key_in_the_order_of_arrival() {
    const COUNT: usize = 20;
    const ROUNDS: usize = 100;
    let Some([server]) = servers() else { return };
    let held = lease(&locker(one(&server).await, TTL)).await;
    let watching = Order::watch(&server).await;
    let mut waiters = Waiters::new();
    for name in 0..COUNT {
        waiters.add(name, locker(one(&server).await, TTL), ROUNDS);
        until_queued(&server, name + 1).await;
    }

    held.release().await.unwrap();
    let names = waiters.all().await;

    assert_eq!(names[..COUNT], (0..COUNT).collect::<Vec<_>>());
    assert_eq!(names.len(), COUNT * ROUNDS);
    let order = Order::at_the_end(&server, watching).await;
    assert_eq!(order.granted, order.joined);
    // The last waiters may find the key free, and so not queue.
    assert!(order.granted.len() > COUNT * (ROUNDS - 1), "{}", order.granted.len());
    assert_eq!(queued(&server), 0);
}

#[tokio::test]
async fn cancelled_waiters_do_not_change_the_order_of_the_living() {
    const CANCELLED: u32 = 200;
    let Some([server]) = servers() else { return };
    let held = lease(&locker(one(&server).await, TTL)).await;
    let watching = Order::watch(&server).await;
    let mut waiters = Waiters::new();
    for name in 0..10 {
        waiters.add(name, locker(one(&server).await, TTL), 50);
        until_queued(&server, name + 1).await;
    }

    held.release().await.unwrap();
    let impatient = locker(one(&server).await, TTL);
    for number in 0..CANCELLED {
        let patience = Duration::from_micros(u64::from(number * 37 % 3_000));
        if let Ok(lease) = timeout(patience, impatient.wait_until_obtained(&key())).await {
            lease.unwrap().release().await.unwrap();
        }
    }
    waiters.all().await;
    soon(impatient.close()).await;

    let order = Order::at_the_end(&server, watching).await;
    let mut joined = order.joined.iter();
    assert!(order.granted.iter().all(|nonce| joined.any(|one| one == nonce)), "another order");
    assert_eq!(queued(&server), 0);
    assert!(server.lease_left(key().as_str()).is_none(), "every grant was released");
}

/// A killed process receives no message. The ttl is longer than the time limit of the test.
#[tokio::test]
async fn killed_waiter_at_the_head_is_skipped_at_once() {
    let Some([server]) = servers() else { return };
    let held = lease(&locker(one(&server).await, LONG)).await;
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_turn::waits_for_the_key", "--ignored", "--nocapture"])
        .env(URL, server.url())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until_queued(&server, 1).await;
    let mut waiters = Waiters::new();
    waiters.add(0, locker(one(&server).await, LONG), 1);
    until_queued(&server, 2).await;

    process.kill().await.unwrap();
    let subscribed = || server.command("CLIENT LIST TYPE pubsub").matches("id=").count();
    eventually("the server has noticed", async || (subscribed() == 1).then_some(())).await;
    held.release().await.unwrap();

    assert_eq!(waiters.all().await, [0]);
}

#[ignore = "the child process of another test"]
#[tokio::test]
async fn waits_for_the_key() {
    let Ok(url) = std::env::var(URL) else { return };
    drop(locker(one_at(url).await, LONG).wait_until_obtained(&key()).await);
}

#[tokio::test]
async fn waiter_without_a_connection_is_skipped_at_once() {
    let Some([server]) = servers() else { return };
    let (dead, next) = (one(&server).await, one(&server).await);
    let held = obtain(&one(&server).await, "a").await;
    let (first, second) = (claim("dead"), claim("next"));
    let notices = places(&dead).listen(&first).await.unwrap();
    assert!(matches!(places(&dead).enqueue(&first).await.unwrap(), Enqueued::Queued(_)));
    let mut listening = places(&next).listen(&second).await.unwrap();
    assert!(matches!(places(&next).enqueue(&second).await.unwrap(), Enqueued::Queued(_)));

    // The subscription ends with its connection, as when a process is killed.
    let subscribed = server.command("CLIENT LIST TYPE pubsub");
    let of_first = subscribed.lines().next().unwrap();
    let id = of_first.split(' ').next().unwrap().strip_prefix("id=").unwrap();
    server.command(&format!("CLIENT KILL ID {id}"));
    drop(notices);
    places(&next).renew(&second).await.unwrap();
    one(&server).await.release(&held, None).await.unwrap();

    let Notice::Granted(grant, _) = soon(listening.next()).await else { panic!("a grant") };
    assert_eq!(grant.nonce, second.nonce);
}

#[tokio::test]
async fn place_that_is_not_renewed_is_skipped() {
    const SHORT: Duration = Duration::from_millis(200);
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let held = obtain(&store, "a").await;
    let silent = claims::claim(&key(), "silent", SHORT);
    let living = claim("living");
    let _notices = places(&store).listen(&silent).await.unwrap();
    let mut listening = places(&store).listen(&living).await.unwrap();
    places(&store).enqueue(&silent).await.unwrap();
    places(&store).enqueue(&living).await.unwrap();

    tokio::time::sleep(SHORT * 2).await;
    store.release(&held, None).await.unwrap();

    let Notice::Granted(grant, _) = soon(listening.next()).await else { panic!("a grant") };
    assert_eq!((grant.nonce, grant.request), (living.nonce, Some(living.request)));
}

#[tokio::test]
async fn dropped_waiter_leaves_the_queue_and_frees_its_grant() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let held = lease(&locker(store.clone(), TTL)).await;
    let mut waiters = Waiters::new();
    let dropped = waiters.add(0, locker(one(&server).await, TTL), 1);
    until_queued(&server, 1).await;
    waiters.add(1, locker(one(&server).await, TTL), 1);
    until_queued(&server, 2).await;

    dropped.abort();
    until_queued(&server, 1).await;
    held.release().await.unwrap();

    assert_eq!(waiters.all().await, [1]);
    let granted = claim("granted");
    let held = obtain(&store, "b").await;
    let notices = places(&store).listen(&granted).await.unwrap();
    places(&store).enqueue(&granted).await.unwrap();
    store.release(&held, None).await.unwrap();
    assert!(store.holder(&key()).await.unwrap().is_some());
    drop(notices);
    places(&store).leave(&granted).await.unwrap();
    assert_eq!(store.holder(&key()).await.unwrap(), None, "one request frees the key");
}

/// A late request of a claim that has left the queue joins it again.
#[tokio::test]
async fn grant_of_a_claim_that_has_left_is_released() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let held = obtain(&store, "a").await;
    let late = claim("late");
    let _notices = places(&store).listen(&late).await.unwrap();
    places(&store).enqueue(&late).await.unwrap();
    places(&store).leave(&late).await.unwrap();
    places(&store).enqueue(&late).await.unwrap();

    store.release(&held, None).await.unwrap();

    eventually("the key is free", async || {
        store.holder(&key()).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// A late request of a claim joins the queue after the lease of the claim was released.
#[tokio::test]
async fn grant_of_a_claim_whose_lease_was_released_is_released() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let held = obtain(&store, "a").await;
    let late = claim("late");
    let mut notices = places(&store).listen(&late).await.unwrap();
    places(&store).enqueue(&late).await.unwrap();
    store.release(&held, None).await.unwrap();
    let Notice::Granted(grant, _) = soon(notices.next()).await else { panic!("a grant") };
    drop(notices);
    let _other = places(&store).listen(&claim("other")).await.unwrap();
    store.release(&grant, None).await.unwrap();
    let held = obtain(&store, "b").await;
    places(&store).enqueue(&late).await.unwrap();

    store.release(&held, None).await.unwrap();

    eventually("the key is free", async || {
        store.holder(&key()).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// Counts the requests of fifty waiters of their own processes while the key is held.
#[tokio::test]
async fn waiters_at_rest_send_at_most_four_requests_per_ttl() {
    const COUNT: u32 = 50;
    const SHORT: Duration = Duration::from_secs(3);
    let Some([server]) = servers() else { return };
    let proxy = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let url = format!("redis://{}", proxy.address());
    let _held = lease(&locker(one(&server).await, SHORT)).await;
    let mut waiters = Waiters::new();
    for name in 0..COUNT {
        waiters.add(name as usize, locker(one_at(url.clone()).await, SHORT), 1);
    }
    until_queued(&server, COUNT as usize).await;
    let (before, clock) = (proxy.requests_with("EVAL"), BootClock::new());
    let began = clock.now();

    tokio::time::sleep(3 * SHORT).await;

    let sent = u32::try_from(proxy.requests_with("EVAL") - before).unwrap();
    let ttls = clock.now().since(began).div_duration_f64(SHORT);
    let limit = f64::from(4 * COUNT) * (ttls + 1.0);
    assert!(f64::from(sent) <= limit, "{sent} requests in {ttls} ttls");
}

/// Starts to count when all lockers wait.
async fn requests_per_hand_over(count: usize, hand_overs: usize) -> Option<f64> {
    let [server] = servers()?;
    let proxy = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let url = format!("redis://{}", proxy.address());
    let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
    let held = lease(&Locker::new(one(&server).await).with_options(options.clone())).await;
    let mut waiters = Waiters::new();
    let rounds = hand_overs.div_ceil(count);
    for name in 0..count {
        let locker = Locker::new(one_at(url.clone()).await).with_options(options.clone());
        waiters.add(name, locker, rounds);
        until_queued(&server, name + 1).await;
    }
    let before = proxy.requests_with("");

    held.release().await.unwrap();
    let order = waiters.all().await;

    let sent = proxy.requests_with("") - before;
    #[expect(clippy::cast_precision_loss, reason = "the counts are small")]
    let each = sent as f64 / order.len() as f64;
    println!("{count} waiters: {sent} requests for {} hand-overs, {each:.2} each", order.len());
    Some(each)
}

#[tokio::test]
async fn hand_over_takes_few_requests_with_many_waiters() {
    let Some(of_eight) = requests_per_hand_over(8, 200).await else { return };
    assert!(of_eight <= 6.0, "{of_eight}");
    let of_many = requests_per_hand_over(64, 200).await.unwrap();
    assert!(of_many <= 10.0, "{of_many}");
}

/// `cargo test --release -p lease-redis --all-features --test servers -- --ignored --nocapture from_release`
#[tokio::test]
#[ignore = "a measurement: it needs an idle machine"]
async fn time_from_release_to_grant() {
    let Some([server]) = servers() else { return };
    let far = Link::with_latency(server.address(), Duration::from_millis(10)).await.unwrap();
    for (count, url) in
        [8, 64].into_iter().flat_map(|count| [(count, server.url()), (count, far.url())])
    {
        let clock = BootClock::new();
        let released = Arc::new(Mutex::new(clock.now()));
        let times = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let store = RedisStore::builder(url.clone()).with_timeout(PATIENT);
            let locker = Locker::new(store.connect().await.unwrap());
            let (released, times, clock) = (Arc::clone(&released), Arc::clone(&times), clock);
            tasks.spawn(async move {
                for _ in 0..1_000 / count {
                    let lease: Lease = locker.wait_until_obtained(&key()).await.unwrap();
                    times.lock().push(clock.now().since(*released.lock()));
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    *released.lock() = clock.now();
                    lease.release().await.unwrap();
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        let mut times = std::mem::take(&mut *times.lock());
        times.sort_unstable();
        println!(
            "{count} waiters{}: p50 {:?}, p99 {:?}",
            if url == far.url() { " at 10 ms" } else { "" },
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        );
    }
}

/// The ttl is longer than the time limit of every wait in these tests.
const LONG: Duration = Duration::from_secs(3_600);

const URL: &str = "LEASE_TEST_WAITER_ON";

const LAST: &str = "no-more-commands";
