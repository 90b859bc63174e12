//! Concurrent lists, repeated writes, and expected values.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{Change, LeaseKey, StoreErrorKind, Value, Written};
use lease_test_servers::claims;
use lease_test_servers::proxy::{Proxy, Wire};

use crate::setting::{TTL, obtain, one, one_at, servers};

/// `list` removes names without a record from the index.
#[tokio::test]
async fn created_record_is_listed_despite_concurrent_lists() {
    let Some([server]) = servers() else { return };
    let far = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    far.set_delay(Duration::from_millis(2));
    let store = one_at(format!("redis://{}", far.address())).await;
    let lister = one(&server).await;
    let listing = tokio::spawn(async move {
        loop {
            lister.list("record/").for_each(async |_| ()).await;
        }
    });

    for number in 0..50 {
        let key: LeaseKey = format!("record/{number:02}").parse().unwrap();
        let grant = claims::obtain(&store, &key, "a", TTL).await;
        let change = Change::new().set("number", number);
        assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);
        store.release(&grant, None).await.unwrap();
    }

    listing.abort();
    assert_eq!(store.list("record/").count().await, 50);
}

/// No later read could decode the value.
#[tokio::test]
async fn too_deep_attribute_of_an_update_is_refused() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    let nested = |levels| (0..levels).fold(Value::Null, |inside, _| Value::List(vec![inside]));

    let refused = store.update(&grant, &Change::new().set("deep", nested(33))).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);

    let deepest = Change::new().set("deep", nested(32));
    assert_eq!(store.update(&grant, &deepest).await.unwrap(), Written::Applied);
    let record = store.read(&grant.key).await.unwrap().unwrap();
    assert_eq!(record.attributes.get("deep"), Some(&nested(32)));
}

#[tokio::test]
async fn repeated_delete_and_transfer_are_recognised() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;

    let grant = obtain(&store, "a").await;
    for _ in 0..2 {
        assert_eq!(store.delete(&grant).await.unwrap(), Written::Applied);
    }
    let grant = obtain(&store, "a").await;
    let to = "b".parse().unwrap();
    for _ in 0..2 {
        assert_eq!(store.transfer(&grant, &to, TTL).await.unwrap(), Written::Applied);
    }
}

/// An update whose expected values do not match creates no record.
#[tokio::test]
async fn expected_values_are_compared_as_text() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    let number = |text: &str| Value::Number(text.parse().unwrap());
    let from = |text: &str| Change::new().expecting("number", number(text));

    let on_none = store.update(&grant, &from("1").set("number", 2)).await.unwrap();
    assert_eq!(on_none, Written::Unexpected);
    assert_eq!(store.list("").count().await, 0);

    let first = Change::new().expecting_none("number").set("number", number("1.0"));
    assert_eq!(store.update(&grant, &first).await.unwrap(), Written::Applied);
    assert_eq!(store.list("").count().await, 1);
    for (text, answer) in [("1", Written::Unexpected), ("1.0", Written::Applied)] {
        assert_eq!(store.update(&grant, &from(text)).await.unwrap(), answer, "{text}");
    }
}
