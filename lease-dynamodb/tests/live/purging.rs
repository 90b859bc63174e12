//! Tests of the purging of items by the table's TTL.

use std::time::Duration;

use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_core::{Attributes, Change, Written};
use lease_test_servers::claims::{claim, fresh_key, granted, obtain};
use lease_test_servers::dynamodb::client_of;

use crate::setup::{LONG, builder, item, put, ready, s, server_and_store};

const DAY: i64 = 86_400;

#[tokio::test]
async fn only_unused_items_are_purged_after_eight_days() {
    let (server, now) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let then = ready(&server, &client_of(proxy.address())).await;
    let [idle, held_again, created, updated, by_hand, bare_by_hand, noted] =
        ["idle", "held again", "created", "updated", "by hand", "bare", "noted"].map(fresh_key);
    let [claimed, adopted] = ["claimed", "adopted"].map(fresh_key);

    let attributes = Attributes::from([("note".to_owned(), "keep me".into())]);
    assert!(then.create(&created, &attributes).await.unwrap());
    let note = ("note", s("keep me"));
    put(&server, &[("lease_key", s(by_hand.as_str())), note.clone()]).await;
    put(&server, &[("lease_key", s(bare_by_hand.as_str()))]).await;
    for key in [&idle, &held_again, &created, &updated, &by_hand, &bare_by_hand, &noted] {
        let grant = obtain(&then, key, "a", LONG).await;
        then.heartbeat(&grant, Beat::new(1)).await.unwrap();
        if key == &updated {
            let change = Change::new().set("note", "keep me");
            assert_eq!(then.update(&grant, &change).await.unwrap(), Written::Applied);
        }
        then.release(&grant, None).await.unwrap();
    }
    let with_note = |key| claim(key, "a", LONG).with_attributes(attributes.clone());
    let (grant, _) = granted(then.obtain(&with_note(&claimed)).await.unwrap());
    then.release(&grant, None).await.unwrap();
    let grant = obtain(&then, &adopted, "a", LONG).await;
    let (grant, _) = granted(then.adopt(&grant, &with_note(&adopted)).await.unwrap());
    then.heartbeat(&grant, Beat::new(1)).await.unwrap();
    then.release(&grant, None).await.unwrap();
    server
        .client()
        .update_item()
        .table_name("leases")
        .key("lease_key", s(noted.as_str()))
        .update_expression("SET note = :note")
        .expression_attribute_values(":note", s("keep me"))
        .send()
        .await
        .unwrap();
    let grant = obtain(&then, &noted, "a", LONG).await;
    then.release(&grant, None).await.unwrap();
    let former = item(&server, &idle).await.unwrap();

    obtain(&now, &held_again, "b", LONG).await;
    let purged = server.sweep();

    assert_eq!(purged, 1);
    assert_eq!(item(&server, &idle).await, None);
    for key in [&created, &updated, &by_hand, &noted, &claimed, &adopted] {
        let item = item(&server, key).await.unwrap();
        assert_eq!(item["note"], s("keep me"), "{key}");
    }
    assert!(item(&server, &bare_by_hand).await.is_some());
    assert!(now.holder(&held_again).await.unwrap().is_some());
    let again = obtain(&now, &idle, "a", LONG).await;
    let former: u64 = former["token"].as_n().unwrap().parse().unwrap();
    assert!(again.token.get() > former);
}

#[tokio::test]
async fn lease_held_for_eight_days_is_not_purged() {
    let (server, _) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let store = ready(&server, &client_of(proxy.address())).await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", Duration::from_hours(24)).await;

    let mut beat = Beat::GRANTED;
    for halves in (0..16).rev() {
        clock.set(-halves * DAY / 2);
        // A step of half a day contradicts the known time. The store learns the time again from the
        // next answers.
        for _ in 0..3 {
            beat = beat.next();
            let answer = store.heartbeat(&grant, beat).await.unwrap();
            assert_eq!(answer, Heartbeat::Extended, "{halves} half days ago");
        }
    }

    assert_eq!(server.sweep(), 0);
    assert!(item(&server, &key).await.unwrap().contains_key("purge_at"));
}

#[tokio::test]
async fn tombstone_is_purged() {
    let (server, _) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let then = ready(&server, &client_of(proxy.address())).await;
    let key = fresh_key("job");
    assert!(then.create(&key, &Attributes::new()).await.unwrap());
    let grant = obtain(&then, &key, "a", LONG).await;

    assert_eq!(then.delete(&grant).await.unwrap(), Written::Applied);

    assert!(item(&server, &key).await.is_some());
    assert_eq!(server.sweep(), 1);
}

#[tokio::test]
async fn store_without_purging_keeps_item_marked_by_another() {
    let (server, _) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let purging = ready(&server, &client_of(proxy.address())).await;
    let key = fresh_key("job");
    let grant = obtain(&purging, &key, "a", LONG).await;
    purging.release(&grant, None).await.unwrap();

    let keeping = builder(&server, &server.client()).without_purging().build().unwrap();
    let grant = obtain(&keeping, &key, "b", LONG).await;
    keeping.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(server.sweep(), 0);
    assert!(keeping.holder(&key).await.unwrap().is_some());
}

#[tokio::test]
async fn reservation_is_not_purged_before_its_end() {
    let (server, _) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let store = ready(&server, &client_of(proxy.address())).await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;

    store.release(&grant, Some(Duration::from_hours(6 * 24))).await.unwrap();

    // The reservation of six days ends first, then seven days of retention.
    assert_eq!(server.sweep(), 0);
}
