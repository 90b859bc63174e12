//! Tests of takeovers: how long a crashed holder's lease excludes other lessees.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::conformance::SkewedClock;
use lease_core::store::{BootClock, Clock, LockStore, Obtained};
use lease_core::{LeaseKey, LeaseOptions, Locker};
use lease_dynamodb::{DynamoDbStore, TimeMode};
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain};
use lease_test_servers::dynamodb::{Count, Server, ServerClock, client_of, config_of};
use lease_test_servers::proxy::Proxy;

use crate::setup::{LONG, TABLE, item, server_and_store, with_long_timeout};

#[tokio::test]
async fn long_expired_lease_goes_to_first_call_of_new_process() {
    let (server, _) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-3600);
    let (count, config) = Count::of(config_of(proxy.address()));
    let client = Client::from_conf(config.build());
    let key = fresh_key("job");
    obtain(&with_long_timeout(client.clone(), TABLE).build().unwrap(), &key, "dead", LONG).await;

    clock.set(0);
    count.take();
    let fresh = with_long_timeout(client, TABLE).build().unwrap();
    granted(fresh.obtain(&claim(&key, "b", LONG)).await.unwrap());

    assert!(count.take() <= 2);
}

#[tokio::test]
async fn long_expired_lease_goes_to_idle_process_in_three_requests() {
    let (server, store) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    let (count, config) = Count::of(config_of(proxy.address()));
    let idle = with_long_timeout(Client::from_conf(config.build()), TABLE).build().unwrap();
    let key = fresh_key("job");
    obtain(&store, &key, "dead", LONG).await;
    held(idle.obtain(&claim(&key, "b", LONG)).await.unwrap());
    count.take();

    // An hour passes on the server, but not in this process. The first answer contradicts the known
    // time. The second answer sets the time.
    clock.set(3600);
    let first = idle.obtain(&claim(&key, "b", LONG)).await.unwrap();
    held(first);
    let mut requests = count.take();
    granted(idle.obtain(&claim(&key, "b", LONG)).await.unwrap());
    requests += count.take();

    assert!(requests <= 3, "{requests}");
}

#[tokio::test]
async fn takeover_by_server_time_waits_for_margin_and_bounds() {
    let (server, store) = server_and_store().await;
    let contender = Contender::of(&server, TimeMode::default()).await;
    let key = fresh_key("job");
    obtain(&store, &key, "dead", TTL).await;
    contender.store.holder(&key).await.unwrap();

    contender.advance(300);
    held(contender.obtain(&key).await);
    contender.advance(290);
    held(contender.obtain(&key).await);

    contender.advance(15);
    granted(contender.obtain(&key).await);
}

/// Each attempt comes from a new process, which knows the time and has no observation.
#[tokio::test]
async fn contender_without_observation_uses_server_time() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("job");
    let clock = BootClock::new();
    // The bounds of the expiry and of the contender's time are each at most a second wide. So the
    // lease is certainly held now, unless the machine paused.
    loop {
        let since = clock.now();
        let dead = obtain(&store, &key, "dead", TTL).await;
        let fresh = Contender::of(&server, TimeMode::default()).await;
        fresh.advance(600);
        let answer = fresh.obtain(&key).await;
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
    fresh.advance(605);
    let (grant, _) = granted(fresh.obtain(&key).await);

    assert_eq!(grant.lessee.as_str(), "b");
}

#[tokio::test]
async fn observer_takes_over_one_ttl_after_first_observation() {
    let (server, store) = server_and_store().await;
    let watcher = Contender::of(&server, TimeMode::ObservationOnly).await;
    let key = fresh_key("job");
    obtain(&store, &key, "dead", TTL).await;

    held(watcher.obtain(&key).await);
    watcher.advance(590);
    held(watcher.obtain(&key).await);

    // The store waits 1 % longer, because clocks differ in rate.
    watcher.advance(17);
    granted(watcher.obtain(&key).await);
}

/// `advance` steps the clocks of the store and the server, so that no test waits for a ttl.
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
        let store = with_long_timeout(client_of(proxy.address()), TABLE)
            .with_time_mode(mode)
            .with_clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .build()
            .unwrap();
        Self { store, clock, date, passed: AtomicI64::new(0), _proxy: proxy }
    }

    fn advance(&self, seconds: u32) {
        self.clock.leap(Duration::from_secs(seconds.into()));
        let before = self.passed.fetch_add(seconds.into(), Ordering::Relaxed);
        self.date.set(before + i64::from(seconds));
    }

    async fn obtain(&self, key: &LeaseKey) -> Obtained {
        self.store.obtain(&claim(key, "b", TTL)).await.unwrap()
    }
}

const TTL: Duration = Duration::from_mins(10);

#[tokio::test]
async fn observer_never_takes_lease_with_heartbeats() {
    let (server, store) = server_and_store().await;
    let ttl = Duration::from_secs(5);
    let key = fresh_key("job");
    let watcher = with_long_timeout(server.client(), TABLE)
        .with_time_mode(TimeMode::ObservationOnly)
        .build()
        .unwrap();
    let locker = Locker::new(store).with_options(LeaseOptions::new(ttl).unwrap());
    let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();

    for _ in 0..30 {
        held(watcher.obtain(&claim(&key, "b", ttl)).await.unwrap());
        tokio::time::sleep(ttl / 20).await;
    }

    assert!(lease.is_held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn observation_alone_ignores_wrong_date() {
    let (server, store) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(86_400);
    let key = fresh_key("job");
    obtain(&store, &key, "alive", LONG).await;

    let strict = with_long_timeout(client_of(proxy.address()), TABLE)
        .with_time_mode(TimeMode::ObservationOnly)
        .build()
        .unwrap();

    for _ in 0..3 {
        held(strict.obtain(&claim(&key, "b", LONG)).await.unwrap());
    }
}

#[tokio::test]
async fn one_wrong_date_does_not_free_a_lease() {
    let (server, store) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    let contender = with_long_timeout(client_of(proxy.address()), TABLE).build().unwrap();
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
