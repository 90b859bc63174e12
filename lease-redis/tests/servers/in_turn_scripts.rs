//! Requests for a queue in orders that only delays and promotions can cause.

use lease_core::store::{
    Beat, Claim, Enqueued, Grant, Heartbeat, LeaseTable, LockStore, Notice, Notices, Obtained,
};
use lease_core::{Attributes, GrantId, LossCause};
use lease_redis::RedisStore;
use lease_test_servers::claims::soon;
use lease_test_servers::redis::RedisServer;

use crate::in_turn::{places, queued};
use crate::setting::{TTL, claim, key, obtain, one, servers};

async fn join(store: &RedisStore, claim: &Claim) -> Notices {
    let notices = places(store).listen(claim).await.unwrap();
    let answer = places(store).enqueue(claim).await.unwrap();
    assert!(matches!(answer, Enqueued::Queued(_)), "{answer:?}");
    notices
}

async fn next_grant(notices: &mut Notices) -> Grant {
    let Notice::Granted(grant, _) = soon(notices.next()).await else { panic!("a grant") };
    grant
}

/// A promoted replica that lacks the first grant grants the request again.
async fn granted_twice(server: &RedisServer, store: &RedisStore) -> (Grant, Grant) {
    let held = obtain(store, "a").await;
    let waiter = claim("waiter");
    let mut notices = join(store, &waiter).await;
    for part in ["queue", "waiters"] {
        assert_eq!(server.command(&format!("COPY lease:{{job}}:{part} {{job}}:{part}")), "1");
    }
    store.release(&held, None).await.unwrap();
    let first = next_grant(&mut notices).await;

    server.command("DEL lease:{job}");
    for part in ["queue", "waiters"] {
        assert_eq!(server.command(&format!("COPY {{job}}:{part} lease:{{job}}:{part}")), "1");
    }
    assert!(matches!(places(store).renew(&claim("other")).await.unwrap(), Enqueued::Gone));
    let second = next_grant(&mut notices).await;
    assert_eq!((second.nonce, second.request), (first.nonce, first.request));
    assert!(second.token > first.token);
    (first, second)
}

#[tokio::test]
async fn heartbeat_of_earlier_grant_does_not_extend_later_grant() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let (first, second) = granted_twice(&server, &store).await;

    let refused = store.heartbeat(&first, Beat::GRANTED.next()).await.unwrap();

    assert_eq!(refused, Heartbeat::Lost(LossCause::Superseded));
    let extended = store.heartbeat(&second, Beat::GRANTED.next()).await.unwrap();
    assert_eq!(extended, Heartbeat::Extended);
}

#[tokio::test]
async fn reservation_of_earlier_grant_does_not_end_later_grant() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let (first, second) = granted_twice(&server, &store).await;

    store.release(&first, Some(TTL)).await.unwrap();

    let holder = store.holder(&key()).await.unwrap().expect("the key is held");
    assert_eq!(holder.token, Some(second.token));
}

#[tokio::test]
async fn earlier_grant_is_not_adopted_after_a_later_grant() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let (first, second) = granted_twice(&server, &store).await;

    let refused = store.adopt(&first, &claim("adopter")).await.unwrap();

    assert!(matches!(refused, Obtained::Held(_)), "{refused:?}");
    let adopted = store.adopt(&second, &claim("adopter")).await.unwrap();
    assert!(matches!(adopted, Obtained::Granted(..)), "{adopted:?}");
}

async fn queued_holder(server: &RedisServer, store: &RedisStore) -> (Claim, Grant, Notices) {
    obtain(store, "a").await;
    let waiter = claim("waiter");
    let notices = join(store, &waiter).await;
    server.command("DEL lease:{job}");
    let Obtained::Granted(grant, _) = store.obtain(&waiter).await.unwrap() else {
        panic!("the key is free")
    };
    assert_eq!(queued(server), 1);
    (waiter, grant, notices)
}

#[tokio::test]
async fn renewal_of_a_holder_removes_its_place() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let (waiter, _, _notices) = queued_holder(&server, &store).await;

    let answer = places(&store).renew(&waiter.repeated()).await.unwrap();

    assert!(matches!(answer, Enqueued::Granted(..)), "{answer:?}");
    assert_eq!(queued(&server), 0);
}

#[tokio::test]
async fn release_of_a_queued_holder_grants_key_to_next_waiter() {
    let Some([server]) = servers() else { return };
    let (store, other) = (one(&server).await, one(&server).await);
    let (_, grant, _notices) = queued_holder(&server, &store).await;
    let next = claim("next");
    let mut listening = join(&other, &next).await;

    store.release(&grant, None).await.unwrap();

    assert_eq!(next_grant(&mut listening).await.nonce, next.nonce);
    let holder = store.holder(&key()).await.unwrap().expect("the key is held");
    assert_eq!(holder.grant, Some(GrantId::from(next.nonce)));
    assert_eq!(queued(&server), 0);
}

#[tokio::test]
async fn release_after_expiry_grants_the_key_to_the_next_waiter() {
    let Some([server]) = servers() else { return };
    let (store, other) = (one(&server).await, one(&server).await);
    let (_, grant, _notices) = queued_holder(&server, &store).await;
    let next = claim("next");
    let mut listening = join(&other, &next).await;
    server.command("DEL lease:{job}");

    store.release(&grant, None).await.unwrap();

    assert_eq!(next_grant(&mut listening).await.nonce, next.nonce);
    assert_eq!(queued(&server), 0);
}

/// The answer to the claim was lost, and the waiter repeats the claim in the queue.
#[tokio::test]
async fn record_held_by_the_claim_of_a_waiter_is_granted_or_freed() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    assert!(store.create(&key(), &Attributes::new()).await.unwrap());
    let waiter = claim("waiter");
    let Obtained::Granted(lost, _) = store.obtain(&waiter).await.unwrap() else {
        panic!("the key is free")
    };

    let answer = places(&store).enqueue(&waiter.clone().repeated()).await.unwrap();

    let Enqueued::Granted(grant, _) = answer else { panic!("{answer:?}") };
    assert_eq!((grant.token, grant.request), (lost.token, lost.request));
    let other = places(&store).enqueue(&claim("other")).await.unwrap();
    assert_eq!(other, Enqueued::NoQueue);
    places(&store).leave(&waiter).await.unwrap();
    assert_eq!(store.holder(&key()).await.unwrap(), None);
}
