//! Sessions that end while a worker has not read their last notices.

use lease_core::store::LeaseRecord;
use lease_core::{Attributes, Change, FencingToken, Holder};

use super::paced::{change_all, fleet};
use super::*;
use crate::worker::view::ring::change_counters;

/// Shard 200 is new, as the child of a shard that the ended worker has read. Only this worker has reported it. All workers
/// would list all rows at the same time, so they must learn of it without a list.
async fn learns_of_shard_200(looking: &mut Looking) -> bool {
    let (listed, end) = (looking.view.listed, now() + Duration::from_secs(20));
    while now() < end {
        if looking.shards().await.iter().any(|shard| shard.starts_with("200")) {
            return looking.view.listed == listed;
        }
        looking.catch_up().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn child_of_an_ended_shard_is_found_if_another_worker_finds_the_end_of_the_session() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    change_all(&table, &mut others).await;
    let mut last = others.pop().unwrap();
    last.end(&table, 58, 200).await;
    a.look(Listed::Changed).await;
    assert!(a.view.late_since.is_some());

    let id = last.id();
    last.session.release().await.unwrap();
    let removed = change_counters(&a.worker, &Change::new().remove(id.to_string())).await;

    assert_eq!(removed.unwrap(), Written::Applied);
    assert!(learns_of_shard_200(&mut a).await);
}

#[tokio::test(start_paused = true)]
async fn child_of_an_ended_shard_is_found_if_this_worker_finds_the_end_of_the_session() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 3).await;
    let mut successor = others.remove(0);
    successor.end(&table, 0, 200).await;

    successor.session.abandon();
    tokio::time::sleep(Duration::from_secs(31)).await;

    assert!(learns_of_shard_200(&mut a).await);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_session_without_unread_notices_costs_no_list() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 3).await;
    others.remove(0).session.abandon();
    tokio::time::sleep(Duration::from_secs(31)).await;

    for _look in 0..10 {
        assert_eq!(a.look(Listed::Changed).await.is_listed, Listed::Changed);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn parent(name: &str, token: u64) -> Parent {
    let token = FencingToken::new(token).unwrap();
    Parent::new(format!("shop/workers/{name}").parse().unwrap(), token)
}

fn id(name: &str, token: u64) -> SessionId {
    SessionId::new(name.parse().unwrap(), FencingToken::new(token).unwrap())
}

/// Only a row of a shard names the session. No other worker may know it.
#[test]
fn session_whose_row_is_unreadable_is_watched() {
    let (mut roster, me) = (Roster::default(), "a".parse().unwrap());
    roster.learn(&"b".parse().unwrap(), &parent("b", 2), &me);
    assert_eq!(roster.ring(&id("a", 1)), []);

    roster.skip(&id("b", 2));

    assert_eq!(roster.ring(&id("a", 1)), [id("b", 2)]);
    assert!(roster.is_uncounted(&id("b", 2)));
}

#[test]
fn row_with_fewer_notices_than_an_earlier_read_is_older() {
    let record = |last: i64| {
        let mut attributes = Attributes::new();
        Change::new().set("noticed", last).apply(&mut attributes);
        let (session, holder) = (parent("b", 2), Holder::new("b".parse().unwrap(), None));
        LeaseRecord::new(session.key, Some(holder), Some(session.token), attributes)
    };
    let (mut roster, me) = (Roster::default(), "a".parse().unwrap());
    roster.learn(&"b".parse().unwrap(), &parent("b", 2), &me);
    roster.read(&id("b", 2), Some(&record(5)), &"shop".parse().unwrap());

    assert!(roster.is_older(&id("b", 2), &record(4)));
    assert!(!roster.is_older(&id("b", 2), &record(5)));
}
