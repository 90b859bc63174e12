//! Faults of go-redsync.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{Beat, Heartbeat, LockStore, Obtained};
use lease_test_servers::claims::{self, soon};
use tokio::task::JoinSet;

use super::Both;
use crate::setting::{
    TTL, eventually, has_lease, key, locker, obtain, obtain_eventually, obtain_for, text,
};

/// In go-redsync, requests to extend and to unlock had no timeout. In node-redlock, the policy of
/// the claim retried a release, possibly for ever.
#[tokio::test]
async fn heartbeat_and_release_time_out() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let grant = obtain(&*store, "a").await;
        both.hang();

        let beat = soon(store.heartbeat(&grant, Beat::new(1))).await.unwrap_err();
        let release = soon(store.release(&grant, None)).await.unwrap_err();

        assert!(beat.is_retryable() && release.is_retryable());
        both.go_on();
        eventually("the store answers again", async || store.holder(&key()).await.ok()).await;
    }
}

/// In go-redsync and `RedLock.net`, an extension created a missing key. So a former holder held the key
/// again.
#[tokio::test]
async fn heartbeat_recreates_no_key_that_another_lessee_freed() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let short = Duration::from_millis(50);
        let former = obtain_for(&*store, "a", short).await;
        let next = obtain_eventually(&*store, "b").await;
        // A release needs a majority. The other nodes may receive the release later.
        eventually("freed on all servers", async || {
            store.release(&next, None).await.unwrap();
            both.servers.iter().all(|server| !has_lease(server)).then_some(())
        })
        .await;

        let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

        // On one server, a freed lock leaves no data, so the cause of the loss may be unknown.
        assert!(matches!(answer, Heartbeat::Lost(_)), "{answer:?}");
        assert!(both.servers.iter().all(|server| !has_lease(server)));
    }
}

/// In go-redsync, a ttl below a millisecond became no ttl, and the key was held for ever.
#[tokio::test]
async fn ttl_below_a_millisecond_expires() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let tiny = claims::claim(&key(), "a", Duration::from_nanos(1));

        // On a quorum, the claim has expired before a majority has answered, which is an error.
        match store.obtain(&tiny).await {
            Ok(Obtained::Granted(grant, _)) => assert_eq!(grant.nonce, tiny.nonce),
            Ok(Obtained::Held(holder)) => panic!("held by {holder:?}"),
            Err(error) => {
                let message = text(&error);
                assert!(message.contains("too late") || message.contains("too soon"), "{message}");
            }
        }

        obtain_eventually(&*store, "b").await;
    }
}

/// In go-redsync, several goroutines could not use one mutex.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_share_a_store_hold_the_key_in_turn() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let locker = locker(Arc::clone(&store), TTL);
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            tasks.spawn(async move {
                for _ in 0..5 {
                    let lease = soon(locker.wait_until_obtained(&key())).await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two tasks hold the key");
                    let token = lease.token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release().await.unwrap();
                }
            });
        }

        soon(tasks.join_all()).await;
    }
}
