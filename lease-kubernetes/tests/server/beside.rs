//! Other programs that write the same object: client-go's leader election, and people.

use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_core::{LossCause, StoreErrorKind};
use lease_test_servers::claims::{claim, eventually, granted, held, obtain};
use lease_test_servers::kubernetes::ApiServer;
use serde_json::{Value, json};

use crate::{NAMESPACE, TTL, key, store};

/// Writes the spec as client-go does when it becomes the holder: it keeps annotations, and raises the transitions.
fn lead(server: &ApiServer, holder: &str, seconds: u32) {
    server.edit(NAMESPACE, "job", |object| {
        let last = object["spec"]["leaseTransitions"].as_u64();
        object["spec"] = json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "leaseTransitions": last.map_or(0, |last| last + 1),
            "acquireTime": "2026-11-28T10:00:00.000000Z",
            "renewTime": "2026-11-28T10:00:00.000000Z",
        });
    });
}

/// Extends the lease as client-go does.
fn renew(server: &ApiServer, second: u32) {
    server.edit(NAMESPACE, "job", |object| {
        object["spec"]["renewTime"] = format!("2026-11-28T10:00:{second:02}.000000Z").into();
    });
}

/// Releases the lease as client-go does.
fn step_down(server: &ApiServer) {
    server.edit(NAMESPACE, "job", |object| {
        object["spec"]["holderIdentity"] = "".into();
        object["spec"]["leaseDurationSeconds"] = 1.into();
        object["spec"]["renewTime"] = "2026-11-28T11:00:00.000000Z".into();
    });
}

fn spec(server: &ApiServer) -> Value {
    server.object(NAMESPACE, "job").unwrap()["spec"].clone()
}

#[tokio::test]
async fn leader_of_client_go_is_a_holder_until_it_steps_down() {
    let server = ApiServer::start();
    let store = store(&server).await;
    lead(&server, "go-1", 3600);

    let holder = held(store.obtain(&claim(&key(), "a", TTL)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "go-1");

    step_down(&server);
    let grant = obtain(&store, &key(), "a", TTL).await;
    assert_eq!(spec(&server)["holderIdentity"], "a");
    assert_eq!(spec(&server)["leaseTransitions"], 1);
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
}

#[tokio::test]
async fn leader_of_client_go_that_stops_is_replaced() {
    let server = ApiServer::start();
    let store = store(&server).await;
    lead(&server, "go-1", 1);

    let grant = eventually("granted", async || {
        match store.obtain(&claim(&key(), "a", TTL)).await.unwrap() {
            lease_core::store::Obtained::Granted(grant, _) => Some(grant),
            lease_core::store::Obtained::Held(_) => None,
        }
    });

    assert_eq!(grant.await.key, key());
}

#[tokio::test]
async fn lease_ends_when_client_go_takes_it_over() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    lead(&server, "go-1", 3600);

    let lost = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(lost, Heartbeat::Lost(LossCause::Superseded));
    renew(&server, 5);
    store.release(&grant, None).await.unwrap();
    assert_eq!(spec(&server)["holderIdentity"], "go-1", "a late release changes nothing");
    held(store.obtain(&claim(&key(), "a", TTL)).await.unwrap());
    step_down(&server);
    let (next, _) = granted(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
    assert!(next.token > grant.token);
}

/// Our annotations still name a grant, but another program has led since.
#[tokio::test]
async fn grant_is_not_revived_when_client_go_steps_down() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    lead(&server, "a", 3600);
    step_down(&server);

    let lost = store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert!(matches!(lost, Heartbeat::Lost(_)), "{lost:?}");
}

/// The new object has smaller tokens, as a read that is not current has.
#[tokio::test]
async fn heartbeat_fails_if_client_go_creates_the_object_anew() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    assert!(server.delete(NAMESPACE, "job"));
    lead(&server, "go-1", 3600);

    let failed = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();

    assert_eq!(failed.kind(), StoreErrorKind::Unavailable);
    assert_eq!(spec(&server)["holderIdentity"], "go-1");
    let holder = held(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "go-1");
}

/// A Go program of the same name takes itself for the holder, and does not raise the transitions.
#[tokio::test]
async fn lease_ends_when_a_program_of_the_same_name_renews_it() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    renew(&server, 5);

    let lost = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert!(matches!(lost, Heartbeat::Lost(_)), "{lost:?}");
}

#[tokio::test]
async fn label_of_another_program_is_kept_with_the_lease() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    server.edit(NAMESPACE, "job", |object| {
        object["metadata"]["labels"]["team"] = "blue".into();
        object["metadata"]["annotations"]["note"] = "x".into();
    });

    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);

    let metadata = server.object(NAMESPACE, "job").unwrap()["metadata"].clone();
    assert_eq!(metadata["labels"]["team"], "blue");
    assert_eq!(metadata["annotations"]["note"], "x");
}

#[tokio::test]
async fn leader_of_client_go_is_not_evicted() {
    let server = ApiServer::start();
    let store = store(&server).await;
    lead(&server, "go-1", 3600);
    let holder = store.holder(&key()).await.unwrap().unwrap();

    let refused = store.evict(&key(), holder.grant.as_ref().unwrap()).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
    assert_eq!(spec(&server)["holderIdentity"], "go-1");
}

#[tokio::test]
async fn object_with_a_strategy_is_refused() {
    let server = ApiServer::start();
    let store = store(&server).await;
    lead(&server, "go-1", 15);
    server.edit(NAMESPACE, "job", |object| {
        object["spec"]["strategy"] = "OldestEmulationVersion".into();
    });

    let refused = store.obtain(&claim(&key(), "a", TTL)).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
}
