//! The end of a session by observation.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::SkewedClock;
use lease_core::store::{Beat, Ended, LockStore, Parent, SessionState, Sessions, Vacancy};
use lease_dynamodb::{DynamoDbStore, TimeMode};
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain};
use lease_test_servers::dynamodb::Server;

use super::{TTL, child, end, record};
use crate::setup::{LONG, builder, item, put, s, server_and_store};

fn observer(server: &Server, clock: &Arc<SkewedClock>, keys: usize) -> DynamoDbStore {
    builder(server, &server.client())
        .with_time_mode(TimeMode::ObservationOnly)
        .with_clock(Arc::<SkewedClock>::clone(clock))
        .with_observed_keys(keys)
        .build()
        .unwrap()
}

fn clock() -> Arc<SkewedClock> {
    Arc::new(SkewedClock::new(Duration::ZERO, 1.0))
}

async fn is_ended(store: &DynamoDbStore, session: &Parent) -> bool {
    matches!(end(store, session).await.unwrap(), SessionState::Ended(_))
}

#[tokio::test]
async fn unchanged_session_is_ended_after_a_ttl_across_attempts() {
    let (server, store) = server_and_store().await;
    let clock = clock();
    let observer = observer(&server, &clock, 100);
    let key = fresh_key("worker");
    let session = Parent::from(&obtain(&store, &key, "a", TTL).await);

    for eighth in 0..8 {
        assert!(!is_ended(&observer, &session).await, "after {eighth} eighths of a ttl");
        // A claim of a child reads the session between two attempts.
        assert!(record(&observer, &key).await.unwrap().holder.is_some());
        clock.leap(TTL / 8);
    }
    clock.leap(TTL / 50);

    assert!(is_ended(&observer, &session).await);
}

#[tokio::test]
async fn session_that_sends_heartbeats_is_not_ended() {
    let (server, store) = server_and_store().await;
    let clock = clock();
    let observer = observer(&server, &clock, 100);
    let session = obtain(&store, &fresh_key("worker"), "a", TTL).await;

    for beat in 1..8 {
        assert!(!is_ended(&observer, &Parent::from(&session)).await);
        store.heartbeat(&session, Beat::new(beat)).await.unwrap();
        clock.leap(TTL * 2);
    }
}

#[tokio::test]
async fn reads_of_children_do_not_displace_the_observation_of_their_session() {
    let (server, store) = server_and_store().await;
    let clock = clock();
    let observer = observer(&server, &clock, 1);
    let session = obtain(&store, &fresh_key("worker"), "a", TTL).await;
    let keys = [(); 5].map(|()| fresh_key("shard"));
    for key in &keys {
        child(&store, key, &session).await;
    }
    assert!(!is_ended(&observer, &Parent::from(&session)).await);

    for key in &keys {
        assert!(record(&observer, key).await.unwrap().holder.is_some());
    }
    clock.leap(TTL * 2);

    assert!(is_ended(&observer, &Parent::from(&session)).await);
}

#[tokio::test]
async fn child_that_is_observed_for_years_is_held() {
    let (server, store) = server_and_store().await;
    let clock = clock();
    let observer = observer(&server, &clock, 100);
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let key = fresh_key("shard");
    child(&store, &key, &session).await;

    for _ in 0..3 {
        let holder = held(observer.obtain(&claim(&key, "b", TTL)).await.unwrap());
        assert_eq!(holder.parent, Some(Parent::from(&session)));
        clock.leap(Duration::from_hours(24 * 365));
    }
}

/// The former holder hands the key over after its session has ended, and no process resumes the hand-over.
#[tokio::test]
async fn claim_is_granted_once_the_lease_of_a_late_hand_over_has_expired() {
    let (server, store) = server_and_store().await;
    let clock = clock();
    let observer = observer(&server, &clock, 100);
    let [former, session] = [
        obtain(&store, &fresh_key("worker"), "a", LONG).await,
        obtain(&store, &fresh_key("worker"), "b", LONG).await,
    ];
    let key = fresh_key("shard");
    let mut handed = child(&store, &key, &former).await;
    store.release(&former, None).await.unwrap();
    let proof = Ended::written(Parent::from(&former));
    let claim = claim(&key, "b", TTL).under(Parent::from(&session));
    let seen = record(&observer, &key).await;
    let vacancy = Vacancy::seen(&key, seen.as_ref(), &claim.lessee, Some(&proof)).unwrap();
    handed.ttl = TTL;
    store.heartbeat(&handed, Beat::new(1)).await.unwrap();

    assert!(observer.obtain_under(&claim, &vacancy).await.is_err());
    clock.leap(TTL * 2);
    let repeated = observer.obtain_under(&claim.repeated(), &vacancy).await.unwrap();

    assert!(granted(repeated).0.token > handed.token);
}

/// Otherwise, the children of the session would have no holder until an operator deletes the item.
#[tokio::test]
async fn session_with_an_invalid_expiry_is_ended_by_observation() {
    let (server, store) = server_and_store().await;
    let clock = clock();
    let observer = observer(&server, &clock, 100);
    for damage in [None, Some(s("soon"))] {
        let key = fresh_key("worker");
        let grant = obtain(&store, &key, "a", TTL).await;
        let mut damaged = item(&server, &key).await.unwrap();
        damaged.remove("expires_at");
        damaged.extend(damage.map(|damage| ("expires_at".to_owned(), damage)));
        let columns: Vec<_> =
            damaged.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        put(&server, &columns).await;

        let session = Parent::from(&grant);
        assert!(!is_ended(&observer, &session).await);
        clock.leap(TTL / 2);
        assert!(!is_ended(&observer, &session).await);
        clock.leap(TTL);

        assert!(is_ended(&observer, &session).await);
        assert!(record(&store, &key).await.unwrap().holder.is_none());
    }
}
