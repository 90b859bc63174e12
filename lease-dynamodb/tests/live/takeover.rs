//! When a lease whose holder is gone goes to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::{
    BootClock, Clock, LeaseKey, LeaseOptions, LockStore, Locker, Obtained, SkewedClock,
};
use lease_dynamodb::{DynamoDbStore, TimeMode};
use lease_tests::claims::{claim, fresh_key, granted, held, obtain};
use lease_tests::dynamodb::{Count, Server, ServerClock, client_of, config_of};
use lease_tests::proxy::Proxy;

use crate::world::{LONG, TABLE, item, world};

#[tokio::test]
async fn a_lease_that_is_long_dead_is_obtained_by_the_first_call_of_a_fresh_process() {
    let (server, _) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-3600);
    let (count, config) = Count::of(config_of(proxy.address()));
    let client = Client::from_conf(config.build());
    let key = fresh_key("job");
    // It died before its first heartbeat, in the first call that it ever made.
    obtain(&DynamoDbStore::new(client.clone(), TABLE), &key, "dead", LONG).await;

    clock.set(0);
    count.take();
    let fresh = DynamoDbStore::new(client, TABLE);
    granted(fresh.obtain(&claim(&key, "b", LONG)).await.unwrap());

    assert!(count.take() <= 2);
}

#[tokio::test]
async fn a_process_that_was_idle_for_long_is_as_quick() {
    let (server, store) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    let (count, config) = Count::of(config_of(proxy.address()));
    let idle = DynamoDbStore::new(Client::from_conf(config.build()), TABLE);
    let key = fresh_key("job");
    obtain(&store, &key, "dead", Duration::from_secs(5)).await;
    held(idle.obtain(&claim(&key, "b", LONG)).await.unwrap());
    count.take();

    // An hour passes there, and none here: the first answer contradicts, the second is believed.
    clock.set(3600);
    let first = idle.obtain(&claim(&key, "b", LONG)).await.unwrap();
    held(first);
    let mut requests = count.take();
    granted(idle.obtain(&claim(&key, "b", LONG)).await.unwrap());
    requests += count.take();

    assert!(requests <= 3, "{requests}");
}

/// By observation, it would go over a ttl after the first sight.
#[tokio::test]
async fn by_dynamodbs_time_it_goes_over_within_the_margin_and_the_intervals_width() {
    let (server, store) = world().await;
    let contender = Contender::of(&server, TimeMode::default()).await;
    let key = fresh_key("job");
    obtain(&store, &key, "dead", TTL).await;
    contender.store.holder(&key).await.unwrap();

    contender.pass(300);
    held(contender.ask(&key).await);
    contender.pass(290);
    held(contender.ask(&key).await);

    contender.pass(15);
    granted(contender.ask(&key).await);
}

/// Each attempt is of a process of its own, which knows the time and has watched nobody.
#[tokio::test]
async fn who_has_not_watched_waits_for_dynamodbs_time_alone() {
    let (server, store) = world().await;
    let key = fresh_key("job");
    let clock = BootClock::new();
    // The interval that a lease ends in is a second wide at most, and so is the contender's: so at this
    // time it is held for certain, unless the machine stood still meanwhile.
    loop {
        let since = clock.now();
        let dead = obtain(&store, &key, "dead", TTL).await;
        let fresh = Contender::of(&server, TimeMode::default()).await;
        fresh.pass(600);
        let answer = fresh.ask(&key).await;
        if clock.now().since(since) < Duration::from_secs(1) {
            held(answer);
            break;
        }
        store.release(&dead, None).await.unwrap();
        if let Obtained::Granted(grant, _) = answer {
            fresh.store.release(&grant, None).await.unwrap();
        }
    }

    let fresh = Contender::of(&server, TimeMode::default()).await;
    fresh.pass(605);
    let (grant, _) = granted(fresh.ask(&key).await);

    assert_eq!(grant.lessee.as_str(), "b");
}

#[tokio::test]
async fn who_watches_takes_over_one_ttl_after_the_first_sight() {
    let (server, store) = world().await;
    let watcher = Contender::of(&server, TimeMode::ObservationOnly).await;
    let key = fresh_key("job");
    obtain(&store, &key, "dead", TTL).await;

    held(watcher.ask(&key).await);
    watcher.pass(590);
    held(watcher.ask(&key).await);

    // 1 % for the clocks' rates.
    watcher.pass(17);
    granted(watcher.ask(&key).await);
}

/// A store whose clock, and whose server's, advance by leaps: what a request takes does not matter.
struct Contender {
    store: DynamoDbStore,
    clock: Arc<SkewedClock>,
    date: ServerClock,
    passed: AtomicI64,
    _proxy: Proxy,
}

impl Contender {
    async fn of(server: &Server, mode: TimeMode) -> Self {
        let (proxy, date) = server.at_another_time().await;
        let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let store = DynamoDbStore::builder(client_of(proxy.address()), TABLE)
            .with_time_mode(mode)
            .with_clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .build()
            .unwrap();
        Self { store, clock, date, passed: AtomicI64::new(0), _proxy: proxy }
    }

    fn pass(&self, seconds: u32) {
        self.clock.leap(Duration::from_secs(seconds.into()));
        let before = self.passed.fetch_add(seconds.into(), Ordering::Relaxed);
        self.date.set(before + i64::from(seconds));
    }

    async fn ask(&self, key: &LeaseKey) -> Obtained {
        self.store.obtain(&claim(key, "b", TTL)).await.unwrap()
    }
}

const TTL: Duration = Duration::from_mins(10);

#[tokio::test]
async fn who_watches_is_never_quicker_than_the_heartbeats() {
    let (server, store) = world().await;
    let ttl = Duration::from_secs(5);
    let key = fresh_key("job");
    let watcher = DynamoDbStore::builder(server.client(), TABLE)
        .with_time_mode(TimeMode::ObservationOnly)
        .build()
        .unwrap();
    let locker = Locker::new(store).with_options(LeaseOptions::new(ttl).unwrap());
    let lease = locker.obtain(&key).await.unwrap().lease().unwrap();

    for _ in 0..30 {
        held(watcher.obtain(&claim(&key, "b", ttl)).await.unwrap());
        tokio::time::sleep(ttl / 20).await;
    }

    assert!(lease.is_held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn strict_contenders_do_not_trust_the_date() {
    let (server, store) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(86_400);
    let key = fresh_key("job");
    obtain(&store, &key, "alive", LONG).await;

    let strict = DynamoDbStore::builder(client_of(proxy.address()), TABLE)
        .with_time_mode(TimeMode::ObservationOnly)
        .build()
        .unwrap();

    for _ in 0..3 {
        held(strict.obtain(&claim(&key, "b", LONG)).await.unwrap());
    }
}

#[tokio::test]
async fn one_answer_with_a_wrong_date_is_not_believed() {
    let (server, store) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    let contender = DynamoDbStore::new(client_of(proxy.address()), TABLE);
    let key = fresh_key("job");
    obtain(&store, &key, "alive", LONG).await;
    held(contender.obtain(&claim(&key, "b", LONG)).await.unwrap());

    clock.set(86_400);
    held(contender.obtain(&claim(&key, "b", LONG)).await.unwrap());
    clock.set(0);

    for _ in 0..3 {
        held(contender.obtain(&claim(&key, "b", LONG)).await.unwrap());
    }
    assert!(item(&server, &key).await.is_some());
}
