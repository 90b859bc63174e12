//! Tests with many contenders at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::conformance::{Call, Faulty};
use lease_core::store::{BootClock, Clock, LockStore, Obtained};
use lease_core::{FencingToken, LeaseOptions, Locker};
use lease_test_servers::claims::{claim, eventually, fresh_key};
use lease_test_servers::dynamodb::{Count, Server};
use parking_lot::Mutex;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::setup::{LONG, builder, ready};

const CONTENDERS: usize = 64;
const ROUNDS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_64_contenders_wins_each_of_200_rounds() {
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    ready(&server, &client).await;
    let key = fresh_key("race");
    let start = Arc::new(Barrier::new(CONTENDERS));
    let stores: Vec<_> =
        (0..CONTENDERS).map(|_| builder(&server, &client).build().unwrap()).collect();
    for store in &stores {
        assert_eq!(store.holder(&key).await.unwrap(), None);
    }
    count.take();

    let mut last = FencingToken::new(0).unwrap();
    for round in 0..ROUNDS {
        let contenders = stores.iter().enumerate().map(|(number, store)| {
            let (store, start) = (store.clone(), Arc::clone(&start));
            let claim = claim(&key, &format!("contender-{number}"), LONG);
            tokio::spawn(async move {
                start.wait().await;
                store.obtain(&claim).await.unwrap()
            })
        });
        let answers = join_all(contenders.collect::<Vec<_>>()).await;

        let mut winners = Vec::new();
        for answer in answers {
            match answer.unwrap() {
                Obtained::Granted(grant, _) => winners.push(grant),
                Obtained::Held(holder) => assert!(holder.token > Some(last), "round {round}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let winner = winners.remove(0);
        assert!(winner.token > last, "round {round}");
        last = winner.token;
        // A contender sends one request. But if this request is a read that arrives before the winner's
        // write, the contender finds the key free and sends a write, too.
        let requests = count.take();
        assert!((CONTENDERS..=CONTENDERS * 2).contains(&requests), "round {round}: {requests}");
        stores[0].release(&winner, None).await.unwrap();
        count.take();
    }
}

/// Counts from the moment when all lockers wait.
struct Contention {
    requests: f64,
    hand_overs: f64,
    waited: Duration,
}

impl Contention {
    /// A hand-over adds the claims of the new holder and its release. On a busy machine, a hand-over
    /// takes longer, so waiters send more polls during it.
    fn is_within(&self, interval: Duration) -> bool {
        let polls = self.waited.as_secs_f64() / interval.as_secs_f64();
        self.requests < 1.5 * polls + 4.0 * self.hand_overs
    }
}

#[expect(clippy::print_stdout, reason = "the figures of a measurement")]
async fn contend_for_a_key(waiters: usize, rounds: usize, options: LeaseOptions) -> Contention {
    let hold = Duration::from_millis(100);
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    let store = ready(&server, &client).await;
    let key = fresh_key("race");
    let held = Locker::new(store).with_options(options.clone());
    let held = held.wait_until_obtained(&key).await.unwrap();
    let clock = BootClock::new();
    let released = Arc::new(Mutex::new(clock.now()));
    let times = Arc::new(Mutex::new(Vec::new()));
    let waited = Arc::new(Mutex::new(Duration::ZERO));
    let counted_from = Arc::new(Mutex::new(None));
    let mut tasks = JoinSet::new();
    let mut stores = Vec::new();
    for _ in 0..waiters {
        let store = Faulty::new(builder(&server, &client).build().unwrap());
        let locker = Locker::new(store.clone()).with_options(options.clone());
        stores.push(store);
        let (released, times, key) = (Arc::clone(&released), Arc::clone(&times), key.clone());
        let (waited, counted_from) = (Arc::clone(&waited), Arc::clone(&counted_from));
        tasks.spawn(async move {
            for round in 0..rounds {
                let asked = clock.now();
                let lease = locker.wait_until_obtained(&key).await.unwrap();
                let from = if round == 0 { counted_from.lock().unwrap() } else { asked };
                *waited.lock() += clock.now().since(from);
                times.lock().push(clock.now().since(*released.lock()));
                sleep(hold).await;
                *released.lock() = clock.now();
                lease.release().await.unwrap();
            }
        });
    }
    let all_wait = || stores.iter().all(|store| store.calls(Call::Obtain) >= 1);
    eventually("all wait", async || all_wait().then_some(())).await;
    count.take();

    *released.lock() = clock.now();
    *counted_from.lock() = Some(clock.now());
    held.release().await.unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }

    let mut times = std::mem::take(&mut *times.lock());
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "the counts are small")]
    let (requests, hand_overs) = (count.take() as f64, times.len() as f64);
    let (waited, each) = (*waited.lock(), requests / hand_overs);
    let tenth = |number| times.get(times.len() * number / 10);
    println!(
        "{waiters} waiters, {rounds} rounds, held for {hold:?}: {each:.2} requests each, p50 {:?}, p90 {:?}",
        tenth(5),
        tenth(9)
    );
    Contention { requests, hand_overs, waited }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_sends_one_request_per_poll_interval() {
    let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
    let interval = options.poll_interval();
    for rounds in [1, 2] {
        let seen = contend_for_a_key(64, rounds, options.clone()).await;
        assert!(seen.is_within(interval), "{} in {:?}", seen.requests, seen.waited);
        // The control: waiters that poll ten times per interval.
        let requests = 10.0 * seen.waited.as_secs_f64() / interval.as_secs_f64();
        let hasty = Contention { requests, ..seen };
        assert!(!hasty.is_within(interval), "{requests} in {:?}", hasty.waited);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: a busy machine makes more requests per hand-over"]
async fn time_from_release_to_grant() {
    for (waiters, rounds) in [(1, 10), (8, 8), (64, 2)] {
        let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
        contend_for_a_key(waiters, rounds, options).await;
    }
}
