//! A server that hangs, and afterwards executes all commands in its sockets.

use std::time::Duration;

use futures_util::future::select_all;
use lease_core::store::{BootClock, Clock};
use lease_core::{LeaseOptions, Locker};
use lease_redis::RedisStore;
use lease_test_servers::redis::{RedisServer, available};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(10);

async fn free_key_is_granted_after(silence: Duration, waiters: usize) {
    let server = RedisServer::start();
    let mut lockers = Vec::new();
    for _ in 0..waiters {
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let locker = Locker::new(store).with_options(LeaseOptions::new(TTL).unwrap());
        // With loaded scripts, each request below is a single command.
        let lease = locker.wait_until_obtained(&"warm-up".parse().unwrap()).await.unwrap();
        lease.release().await.unwrap();
        lockers.push(locker);
    }
    server.hang();
    let waiting = lockers.into_iter().map(|locker| {
        tokio::spawn(async move { locker.wait_until_obtained(&"job".parse().unwrap()).await })
    });
    let waiting: Vec<_> = waiting.collect();

    sleep(silence).await;
    server.go_on();
    let resumed = BootClock::new().now();
    let (first, _, _others) = timeout(TTL * 3, select_all(waiting)).await.unwrap();

    assert!(first.unwrap().unwrap().is_held());
    // An abandoned claim would hold the key for a ttl. The waiter retries within 3.4 s.
    let took = BootClock::new().now().since(resumed);
    assert!(took < TTL * 4 / 5, "{took:?} after a silence of {silence:?}");
}

#[tokio::test]
async fn waiter_obtains_free_key_after_silence_below_ttl() {
    if available() {
        free_key_is_granted_after(TTL * 9 / 10, 1).await;
    }
}

#[tokio::test]
async fn waiter_obtains_free_key_after_silence_above_ttl() {
    if available() {
        free_key_is_granted_after(TTL * 3 / 2, 1).await;
    }
}

#[tokio::test]
async fn one_of_two_waiters_obtains_free_key_after_silence_below_ttl() {
    if available() {
        free_key_is_granted_after(TTL * 9 / 10, 2).await;
    }
}
