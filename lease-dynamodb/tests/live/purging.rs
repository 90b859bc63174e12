//! What the table's TTL may delete, and what it must leave alone.

use std::time::Duration;

use lease_core::{Attributes, Beat, Change, Heartbeat, LeaseTable, LockStore, Written};
use lease_tests::claims::{fresh_key, obtain};
use lease_tests::dynamodb::client_of;

use crate::world::{LONG, item, put, ready, s, world};

const DAY: i64 = 86_400;

#[tokio::test]
async fn after_eight_days_only_what_nobody_needs_is_purged() {
    let (server, now) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let then = ready(&server, &client_of(proxy.address())).await;
    let [idle, held_again, created, updated, by_hand, bare_by_hand, noted] =
        ["idle", "held again", "created", "updated", "by hand", "bare", "noted"].map(fresh_key);

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
    // Somebody adds an attribute behind our back; the next grant notices.
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
    for key in [&created, &updated, &by_hand, &noted] {
        let item = item(&server, key).await.unwrap();
        assert_eq!(item["note"], s("keep me"), "{key}");
    }
    assert!(item(&server, &bare_by_hand).await.is_some());
    assert!(now.holder(&held_again).await.unwrap().is_some());
    // The token goes on where it was, although nobody remembers it.
    let again = obtain(&now, &idle, "a", LONG).await;
    let former: u64 = former["token"].as_n().unwrap().parse().unwrap();
    assert!(again.token.get() > former);
}

#[tokio::test]
async fn a_lease_that_is_kept_for_eight_days_is_not_purged() {
    let (server, _) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let store = ready(&server, &client_of(proxy.address())).await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", Duration::from_hours(24)).await;

    let mut beat = Beat::GRANTED;
    for halves in (0..16).rev() {
        clock.set(-halves * DAY / 2);
        // Half a day at once contradicts what the store knew: it forgets, learns, and knows.
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
async fn a_tombstone_is_purged_in_the_end() {
    let (server, _) = world().await;
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
