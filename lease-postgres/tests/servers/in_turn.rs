//! Waiting in turn: who is granted a freed key, and how the waiters learn of it.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{Claim, Enqueued, Grant, InTurn, LeaseTable, LockStore, Notice, Obtained};
use lease_core::{Change, LeaseOptions, Locker};
use lease_postgres::PostgresStore;
use lease_test_servers::claims::{claim, eventually, obtain, soon};
use lease_test_servers::postgres::PostgresServer;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::setting::{TTL, builder, connected, key, setting};

/// The key is held by `a`. Claims of these lessees are queued.
pub(crate) async fn queued(store: &PostgresStore, lessees: &[&str]) -> (Grant, Vec<Claim>) {
    let held = obtain(store, &key(), "a", TTL).await;
    let mut claims = Vec::new();
    for lessee in lessees {
        let claim = claim(&key(), lessee, TTL);
        let place = store.enqueue(&claim).await.unwrap();
        assert!(matches!(place, Enqueued::Queued(_)), "{place:?}");
        claims.push(claim);
    }
    (held, claims)
}

pub(crate) async fn holder(store: &PostgresStore) -> Option<String> {
    let holder = store.holder(&key()).await.unwrap();
    holder.map(|holder| holder.lessee.as_str().to_owned())
}

pub(crate) async fn is_held_by(store: &PostgresStore, lessee: &str) -> bool {
    holder(store).await.as_deref() == Some(lessee)
}

pub(crate) fn queue(server: &PostgresServer) -> String {
    server.command("SELECT coalesce(jsonb_array_length(queue), 0) FROM lease")
}

/// The long statement must not make claims and releases slower that nobody waits for.
#[tokio::test]
async fn key_without_waiters_needs_no_statement_for_queues() {
    let Some(server) = PostgresServer::start() else { return };
    let broken = builder(&server).with_altered_statement("hand_on", "WITH patience", "BROKEN");
    let store = connected(broken.with_altered_statement("place", "WITH patience", "BROKEN")).await;

    for _ in 0..3 {
        let grant = obtain(&store, &key(), "a", TTL).await;
        store.release(&grant, None).await.unwrap();
    }

    assert!(store.enqueue(&claim(&key(), "b", TTL)).await.is_err(), "the statement is broken");
}

#[tokio::test]
async fn hand_off_needs_only_the_short_statement() {
    let Some(server) = PostgresServer::start() else { return };
    let broken = builder(&server).with_altered_statement("hand_on", "WITH patience", "BROKEN");
    let store = connected(broken).await;
    let (held, claims) = queued(&store, &["b", "c"]).await;

    store.release(&held, None).await.unwrap();

    assert!(is_held_by(&store, "b").await);
    assert!(store.leave(&claims[1]).await.is_err(), "the statement is broken");
}

#[tokio::test]
async fn lockers_obtain_the_key_in_the_order_of_arrival() {
    const COUNT: usize = 8;
    const ROUNDS: usize = 3;
    let Some((server, store)) = setting().await else { return };
    let options = LeaseOptions::new(TTL).unwrap();
    let held = obtain(&store, &key(), "a", TTL).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for name in 0..COUNT {
        let locker = Locker::new(connected(builder(&server)).await).with_options(options.clone());
        let order = Arc::clone(&order);
        waiters.spawn(async move {
            for _ in 0..ROUNDS {
                let lease = locker.wait_until_obtained(&key()).await.unwrap();
                order.lock().push(name);
                lease.release().await.unwrap();
            }
        });
        let expected = (name + 1).to_string();
        eventually("the waiter is queued", async || (queue(&server) == expected).then_some(()))
            .await;
    }

    store.release(&held, None).await.unwrap();
    soon(waiters.join_all()).await;

    let order = std::mem::take(&mut *order.lock());
    assert_eq!(order[..COUNT], (0..COUNT).collect::<Vec<_>>());
    assert_eq!(order.len(), COUNT * ROUNDS);
    assert_eq!(queue(&server), "0");
}

#[tokio::test]
async fn end_of_the_listening_connection_is_noticed() {
    let Some((server, store)) = setting().await else { return };
    let waiting = claim(&key(), "b", TTL);
    let mut notices = store.listen(&waiting).await.unwrap();
    let (held, _) = queued(&store, &[]).await;
    store.enqueue(&waiting).await.unwrap();

    server.command(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    );

    assert_eq!(soon(notices.next()).await, Notice::Missed);
    let mut notices = eventually("listens again", async || store.listen(&waiting).await.ok()).await;
    eventually("renewed", async || store.renew(&waiting).await.ok()).await;
    eventually("released", async || store.release(&held, None).await.ok()).await;
    let notice = soon(notices.next()).await;
    assert!(
        matches!(&notice, Notice::Granted(grant, _) if grant.nonce == waiting.nonce),
        "{notice:?}"
    );
}

/// The attributes may be longer than a notification.
#[tokio::test]
async fn waiter_for_a_record_is_granted_its_attributes() {
    let Some((_server, store)) = setting().await else { return };
    let (held, _) = queued(&store, &[]).await;
    let waiting = claim(&key(), "b", TTL);
    let mut notices = store.listen(&waiting).await.unwrap();
    store.enqueue(&waiting).await.unwrap();
    let change = Change::new().set("sky", "blue".repeat(5000).as_str());
    let _ = store.update(&held, &change).await.unwrap();

    store.release(&held, None).await.unwrap();

    assert_eq!(soon(notices.next()).await, Notice::Missed);
    let repeated = waiting.clone().repeated();
    let Enqueued::Granted(grant, attributes) = store.renew(&repeated).await.unwrap() else {
        panic!("the waiter was not granted the key")
    };
    assert_eq!(grant.request, Some(waiting.request), "the request that was granted");
    assert!(attributes.contains_key("sky"));
}

/// The request of a dropped waiter may be late.
#[tokio::test]
async fn key_that_is_granted_to_a_claim_that_left_is_freed() {
    let Some((_server, store)) = setting().await else { return };
    let (held, claims) = queued(&store, &["b"]).await;
    let _notices = store.listen(&claim(&key(), "c", TTL)).await.unwrap();
    store.leave(&claims[0]).await.unwrap();
    store.enqueue(&claims[0]).await.unwrap();

    store.release(&held, None).await.unwrap();

    eventually("freed", async || holder(&store).await.is_none().then_some(())).await;
}

/// Otherwise, the waiter would not know when the reservation ends.
#[tokio::test]
async fn reserved_release_wakes_the_waiters() {
    let Some((_server, store)) = setting().await else { return };
    let (held, _) = queued(&store, &[]).await;
    let waiting = claim(&key(), "b", TTL);
    let mut notices = store.listen(&waiting).await.unwrap();
    store.enqueue(&waiting).await.unwrap();
    let reserved = Duration::from_secs(60);

    store.release(&held, Some(reserved)).await.unwrap();

    assert_eq!(soon(notices.next()).await, Notice::Missed);
    let answer = store.renew(&waiting.clone().repeated()).await.unwrap();
    let Enqueued::Queued(place) = answer else { panic!("{answer:?}") };
    assert!(place.expires_in.unwrap() <= reserved, "the rest of the reservation: {place:?}");
}

#[tokio::test]
async fn transfer_wakes_the_waiters() {
    let Some((_server, store)) = setting().await else { return };
    let (held, _) = queued(&store, &[]).await;
    let waiting = claim(&key(), "b", TTL);
    let mut notices = store.listen(&waiting).await.unwrap();
    store.enqueue(&waiting).await.unwrap();

    let _ = store.transfer(&held, &waiting.lessee, TTL).await.unwrap();

    assert_eq!(soon(notices.next()).await, Notice::Missed);
    let answer = store.renew(&waiting.clone().repeated()).await.unwrap();
    assert!(matches!(answer, Enqueued::Granted(..)), "{answer:?}");
    let again = store.obtain(&waiting).await.unwrap();
    assert!(matches!(again, Obtained::Granted(..)), "{again:?}");
}
