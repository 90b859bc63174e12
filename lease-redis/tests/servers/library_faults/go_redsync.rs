//! RS, go-redsync: requests without a time-out, keys without a ttl, mutexes for one goroutine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::{Beat, Heartbeat, LockStore, LossCause, Obtained};
use lease_tests::claims::{self, soon};
use tokio::task::JoinSet;

use super::Both;
use crate::setting::{
    TTL, eventually, has_it, key, locker, obtain, obtain_for, obtain_in_the_end, text,
};

/// RS: extending and unlocking had no time-out of their own. NRL: a release was retried with
/// whatever policy, possibly for ever.
#[tokio::test]
async fn heartbeats_and_releases_are_given_up_in_time() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let grant = obtain(&*store, "a").await;
        both.hang();

        let beat = soon(store.heartbeat(&grant, Beat::new(1))).await.unwrap_err();
        let release = soon(store.release(&grant, None)).await.unwrap_err();

        assert!(beat.is_retryable() && release.is_retryable());
        both.go_on();
        eventually("it answers again", async || store.holder(&key()).await.ok()).await;
    }
}

/// RS and RLN: an extension made a key again that was not there, so whoever had lost it held it
/// again, after another held and freed it.
#[tokio::test]
async fn a_heartbeat_never_makes_a_key_again_that_another_held_and_freed() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let short = Duration::from_millis(50);
        let former = obtain_for(&*store, "a", short).await;
        let next = obtain_in_the_end(&*store, "b").await;
        // A majority is enough for a release: the others may hear of it later.
        eventually("all have freed it", async || {
            store.release(&next, None).await.unwrap();
            both.servers.iter().all(|server| !has_it(server)).then_some(())
        })
        .await;

        let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

        assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
        assert!(both.servers.iter().all(|server| !has_it(server)));
    }
}

/// RS: a ttl below a millisecond was none, and the key was held for ever.
#[tokio::test]
async fn a_ttl_below_a_millisecond_runs_out() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let tiny = claims::claim(&key(), "a", Duration::from_nanos(1));

        // On a quorum it has run out before a majority has answered, and that is said.
        match store.obtain(&tiny).await {
            Ok(Obtained::Granted(grant, _)) => assert_eq!(grant.nonce, tiny.nonce),
            Ok(Obtained::Held(holder)) => panic!("held by {holder:?}"),
            Err(error) => {
                let said = text(&error);
                assert!(said.contains("too late") || said.contains("too soon"), "{said}");
            }
        }

        obtain_in_the_end(&*store, "b").await;
    }
}

/// RS: one mutex was not to be used by several goroutines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_serves_many_tasks_of_which_one_at_a_time_has_the_key() {
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
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
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
