//! When a lease whose holder is gone goes to another.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::{BootClock, Clock, LeaseOptions, LockStore, Locker, Obtained};
use lease_dynamodb::{DynamoDbStore, TimeMode};
use lease_tests::claims::{claim, fresh_key, granted, held, obtain, soon, take_over};
use lease_tests::dynamodb::{Count, client_of, config_of};

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

#[tokio::test]
async fn by_dynamodbs_time_it_goes_over_within_the_margin_and_the_intervals_width() {
    let (_server, store) = world().await;
    let ttl = Duration::from_millis(500);
    let key = fresh_key("job");
    let clock = BootClock::new();
    let locker = Locker::new(store.clone()).with_options(LeaseOptions::new(ttl).unwrap());
    let since = clock.now();
    obtain(&store, &key, "dead", Duration::from_secs(3)).await;

    let lease = soon(locker.wait_until_obtained(&key)).await.unwrap();

    let after = clock.now().since(since);
    assert!(after >= Duration::from_secs(3), "{after:?}");
    // By observation it would be 3.03 s after the first sight, by time up to 3 + 2 + 2 s.
    assert!(after <= Duration::from_millis(3600), "{after:?}");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn who_has_not_watched_waits_for_dynamodbs_time_alone() {
    let (server, store) = world().await;
    let ttl = Duration::from_secs(2);
    let key = fresh_key("job");
    let clock = BootClock::new();
    let since = clock.now();
    obtain(&store, &key, "dead", ttl).await;
    // Never asks twice: every attempt is a process of its own that knows the time.
    let grant = soon(async {
        loop {
            let fresh = DynamoDbStore::new(server.client(), TABLE);
            match fresh.obtain(&claim(&key, "b", ttl)).await.unwrap() {
                Obtained::Granted(grant, _) => return grant,
                Obtained::Held(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;

    // ttl, the holder's width and ours (a second each at most, and round trips), the margin.
    let after = clock.now().since(since);
    assert_eq!(grant.lessee.as_str(), "b");
    assert!(after >= ttl + Duration::from_secs(2), "{after:?}");
    assert!(after <= ttl + Duration::from_millis(4_500), "{after:?}");
}

#[tokio::test]
async fn who_watches_takes_over_one_ttl_after_the_first_sight() {
    let (server, store) = world().await;
    let ttl = Duration::from_millis(800);
    let key = fresh_key("job");
    obtain(&store, &key, "dead", ttl).await;
    let watcher = DynamoDbStore::builder(server.client(), TABLE)
        .with_time_mode(TimeMode::ObservationOnly)
        .build()
        .unwrap();
    let clock = BootClock::new();

    let since = clock.now();
    held(watcher.obtain(&claim(&key, "b", ttl)).await.unwrap());
    take_over(&watcher, &key, "b", ttl).await;

    let after = clock.now().since(since);
    assert!(after >= ttl, "{after:?}");
    // 1 % for the clocks' rates, a poll of 20 ms, and round trips on a busy machine.
    assert!(after <= ttl + Duration::from_millis(400), "{after:?}");
}

#[tokio::test]
async fn who_watches_is_never_quicker_than_the_heartbeats() {
    let (server, store) = world().await;
    let ttl = Duration::from_millis(600);
    let key = fresh_key("job");
    let watcher = DynamoDbStore::builder(server.client(), TABLE)
        .with_time_mode(TimeMode::ObservationOnly)
        .build()
        .unwrap();
    let locker = Locker::new(store).with_options(LeaseOptions::new(ttl).unwrap());
    let lease = locker.obtain(&key).await.unwrap().lease().unwrap();

    for _ in 0..60 {
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
