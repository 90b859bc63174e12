//! Claims with attributes: their requests, their records in the index, and refusals.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{Grant, LeaseTable, LockStore};
use lease_core::{Attributes, LeaseKey, StoreErrorKind, Value, Written};
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, fresh_key};
use lease_test_servers::proxy::{Proxy, Wire};
use lease_test_servers::redis::{PATIENT, RedisCluster, available};

use crate::setting::{TTL, claim, obtain, one, one_at, quorum_behind_proxies, servers, text};

fn named(name: &str, value: impl Into<Value>) -> Attributes {
    Attributes::from([(name.to_owned(), value.into())])
}

async fn obtain_with(store: &RedisStore, key: &LeaseKey, attributes: Attributes) -> Grant {
    let claim = claims::claim(key, "a", TTL).with_attributes(attributes.clone());
    let (grant, returned) = claims::granted(store.obtain(&claim).await.unwrap());
    assert_eq!(returned, attributes);
    grant
}

#[tokio::test]
async fn grant_with_attributes_takes_one_request() {
    let Some([server]) = servers() else { return };
    let proxy = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let store = one_at(format!("redis://{}", proxy.address())).await;
    // Loads the scripts, so that no later call sends a script in full.
    let warm = fresh_key("warm");
    let grant = obtain_with(&store, &warm, named("address", "10.0.0.1")).await;
    drop(store.adopt(&grant, &claims::claim(&warm, "b", TTL)).await.unwrap());
    let key = fresh_key("job");

    let grant = obtain_with(&store, &key, named("address", "10.0.0.1")).await;
    assert_eq!(proxy.requests_with(key.as_str()), 1, "an obtain that creates the record");
    let adopting = claims::claim(&key, "b", TTL).with_attributes(named("address", "10.0.0.2"));
    let (_, attributes) = claims::granted(store.adopt(&grant, &adopting).await.unwrap());
    assert_eq!(proxy.requests_with(key.as_str()), 2, "an adoption");

    assert_eq!(attributes, named("address", "10.0.0.2"));
    let listed = store.list(key.as_str()).map(|record| record.unwrap().attributes);
    assert_eq!(listed.collect::<Vec<_>>().await, [named("address", "10.0.0.2")]);
}

/// `list` removes names without a record from the index.
#[tokio::test]
async fn record_of_a_claim_is_listed_beside_concurrent_lists() {
    let Some([server]) = servers() else { return };
    let far = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    far.set_delay(Duration::from_millis(2));
    let store = one_at(format!("redis://{}", far.address())).await;

    makes_records_beside(one(&server).await, &store).await;
}

#[tokio::test]
async fn cluster_record_of_a_claim_is_listed_beside_concurrent_lists() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let connect =
        async || RedisStore::cluster(cluster.urls()).with_timeout(PATIENT).connect().await.unwrap();

    makes_records_beside(connect().await, &connect().await).await;
}

async fn makes_records_beside(lister: RedisStore, store: &RedisStore) {
    let listing = tokio::spawn(async move {
        loop {
            lister.list("record/").for_each(async |_| ()).await;
        }
    });

    for number in 0..50 {
        let key: LeaseKey = format!("record/{number:02}").parse().unwrap();
        let grant = obtain_with(store, &key, named("number", number)).await;
        store.release(&grant, None).await.unwrap();
        if number % 2 == 0 {
            let grant = obtain_with(store, &key, named("number", number + 1)).await;
            store.release(&grant, None).await.unwrap();
        }
    }

    listing.abort();
    assert_eq!(store.list("record/").count().await, 50);
}

#[tokio::test]
async fn refused_claim_with_attributes_makes_no_record() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    let to = "b".parse().unwrap();
    assert_eq!(store.transfer(&grant, &to, TTL).await.unwrap(), Written::Applied);

    let other = claim("c").with_attributes(named("address", "10.0.0.3"));
    claims::held(store.obtain(&other).await.unwrap());
    assert!(store.read(&grant.key).await.unwrap().is_none(), "a refused claim created a record");

    let meant = claim("b").with_attributes(named("address", "10.0.0.2"));
    claims::granted(store.obtain(&meant).await.unwrap());
}

#[tokio::test]
async fn too_deep_attribute_is_refused_before_the_grant() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let nested = (0..33).fold(Value::Null, |inside, _| Value::List(vec![inside]));

    let refused = store.obtain(&claim("a").with_attributes(named("deep", nested))).await;

    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Refused);
    assert!(store.holder(&claim("a").key).await.unwrap().is_none());
}

#[tokio::test]
async fn quorum_refuses_a_claim_with_attributes_before_any_request() {
    let Some(servers) = servers::<3>() else { return };
    let (proxies, store) = quorum_behind_proxies(&servers).await;
    let grant = obtain(&store, "a").await;
    let refused = claims::claim(&grant.key, "with-attributes", TTL);
    let refused = refused.with_attributes(named("address", "10.0.0.1"));

    for answer in [store.obtain(&refused).await, store.adopt(&grant, &refused).await] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        assert!(text(&error).contains("a quorum keeps no records"), "{}", text(&error));
    }

    let requests = |proxy: &Proxy| proxy.requests_with("with-attributes");
    assert_eq!(proxies.iter().map(requests).sum::<usize>(), 0);
}
