//! A server that stands still and then serves everything that lies in its sockets.

use std::time::Duration;

use lease_core::{BootClock, Clock, LeaseOptions, Locker};
use lease_redis::RedisStore;
use lease_tests::redis::{RedisServer, available};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(10);

async fn locker(server: &RedisServer) -> Locker {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    Locker::new(store).with_options(LeaseOptions::new(TTL).unwrap())
}

/// Two processes wait for a free key while the server stands still for `silence`.
async fn free_key_is_granted_after(silence: Duration) {
    let server = RedisServer::start();
    let (one, other) = (locker(&server).await, locker(&server).await);
    server.hang();
    let waiting = [one, other].map(|locker| {
        tokio::spawn(async move { locker.wait_until_obtained(&"job".parse().unwrap()).await })
    });

    sleep(silence).await;
    server.go_on();
    let going_on = BootClock::new().now();
    let [one, other] = waiting;
    let (first, _waits) =
        timeout(TTL * 3, futures_util::future::select(one, other)).await.unwrap().factor_first();

    assert!(first.unwrap().unwrap().is_held());
    // A claim that nobody waits for would hold the key for a ttl. A retry comes within 3.4 s.
    let took = BootClock::new().now().since(going_on);
    assert!(took < TTL * 4 / 5, "{took:?} after a silence of {silence:?}");
}

#[tokio::test]
async fn free_key_is_granted_at_once_after_a_silence_of_most_of_a_ttl() {
    if available() {
        free_key_is_granted_after(TTL * 9 / 10).await;
    }
}

#[tokio::test]
async fn free_key_is_granted_at_once_after_a_silence_longer_than_a_ttl() {
    if available() {
        free_key_is_granted_after(TTL * 3 / 2).await;
    }
}
