//! Rows that KCL has written: each write keeps the attributes of other programs.

use async_trait::async_trait;
use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_core::{Change, Lessee, LossCause, Value, Written};
use lease_kcl::KclCoexistence;
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream, Worker,
};

use crate::shop::{Shop, TTL, key, n, s};

#[tokio::test]
async fn attributes_of_kcl_and_others_survive_every_operation() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let before = shop.raw().await;

    let grant = shop.granted("a").await;
    shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
    shop.table.release(&grant, None).await.unwrap();

    let after = shop.raw().await;
    for name in ["parentShardId", "throughputKBps", "attributeOfLaterKcl", "leaseKey"] {
        assert_eq!(after.get(name), before.get(name), "{name}");
    }
    assert_eq!(after["checkpoint"], s("20"));
    assert!(!after.contains_key("leaseOwner"), "the lease is free for KCL, too");
    // A grant increments the counter by two, and each other write by one.
    assert_eq!(after["leaseCounter"], n(7 + 5));
}

#[tokio::test]
async fn checkpoint_removes_prepared_checkpoint_of_kcl() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;
    assert!(shop.raw().await.contains_key("pendingCheckpoint"));

    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);

    let pending: Vec<_> = shop.raw().await.into_keys().filter(|n| n.contains("pending")).collect();
    assert_eq!(pending, [""; 0]);
}

#[tokio::test]
async fn lease_stolen_by_kcl_is_lost() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    assert!(shop.kcl_takes("kcl").await);

    let lost = Heartbeat::Lost(LossCause::Superseded);
    assert_eq!(shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap(), lost);
    let written = shop.checkpoint(&grant, "10", "20").await;
    assert_eq!(written, Written::Lost(LossCause::Superseded));
    let to: Lessee = "b".parse().unwrap();
    let written = shop.table.transfer(&grant, &to, TTL).await.unwrap();
    assert_eq!(written, Written::Lost(LossCause::Superseded));
    shop.table.release(&grant, None).await.unwrap();
    assert_eq!(shop.table.delete(&grant).await.unwrap(), Written::Lost(LossCause::Superseded));
    let row = shop.raw().await;
    assert_eq!((&row["leaseOwner"], &row["checkpoint"]), (&s("kcl"), &s("10")));
}

#[tokio::test]
async fn steal_by_kcl_worker_with_outdated_counter_is_refused() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let steal = "SET leaseOwner = :me, leaseCounter = :next";

    let seen = shop.counter().await;
    let grant = shop.granted("a").await;
    assert!(!shop.kcl_writes(seen, steal, &[(":me", "kcl")]).await, "obtain");
    let seen = shop.counter().await;
    shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert!(!shop.kcl_writes(seen, steal, &[(":me", "kcl")]).await, "heartbeat");
    let seen = shop.counter().await;
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
    assert!(!shop.kcl_writes(seen, steal, &[(":me", "kcl")]).await, "checkpoint");
    let seen = shop.counter().await;
    let to: Lessee = "b".parse().unwrap();
    assert_eq!(shop.table.transfer(&grant, &to, TTL).await.unwrap(), Written::Applied);
    assert!(!shop.kcl_writes(seen, steal, &[(":me", "kcl")]).await, "transfer");
}

#[tokio::test]
async fn record_held_by_kcl_shows_its_owner() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;
    let read = || async { shop.table.read(&key()).await.unwrap().unwrap() };

    let of_kcl = read().await;
    shop.put(None).await;
    shop.granted("a").await;
    let ours = read().await;

    assert_eq!(
        of_kcl.holder.map(|holder| holder.lessee.as_str().to_owned()).as_deref(),
        Some("kcl")
    );
    assert_eq!(of_kcl.attributes.get("leaseOwner"), Some(&Value::from("kcl")));
    assert_eq!(ours.attributes.get("leaseOwner"), None);
}

#[tokio::test]
async fn worker_whose_initial_position_differs_from_table_is_refused() {
    let start = InitialPosition::TrimHorizon;
    let shop = Shop::with(|builder| builder.with_initial_position(start)).await;
    let worker = || {
        Worker::builder("shop", shop.table.clone(), SimStream::new(1), |_: &ShardContext| Idle)
            .with_coexistence(KclCoexistence::new(shop.table.clone()))
    };

    assert!(worker().build().is_ok(), "the table's position");
    assert!(worker().with_initial_position(start).build().is_ok(), "the same position");
    let refused = worker().with_initial_position(InitialPosition::Latest).build();
    let message = refused.expect_err("another position").to_string();
    assert!(message.contains("must be TrimHorizon"), "{message}");
}

#[tokio::test]
async fn first_checkpoint_after_at_timestamp_without_time_is_written() {
    for (word, initial) in
        [("LATEST", InitialPosition::Latest), ("AT_TIMESTAMP", InitialPosition::AtTimestamp(5))]
    {
        let shop = Shop::with(|builder| builder.with_initial_position(initial)).await;
        shop.put(None).await;
        let seen = shop.counter().await;
        assert!(shop.kcl_writes(seen, "SET checkpoint = :word", &[(":word", word)]).await);
        let grant = shop.granted("a").await;
        let read = shop.table.read(&key()).await.unwrap().unwrap().attributes;

        let mut change = Change::new().set("checkpoint", "20");
        for name in ["checkpoint", "checkpointTimestamp"] {
            change = match read.get(name) {
                Some(value) => change.expecting(name, value.clone()),
                None => change.expecting_none(name),
            };
        }
        let written = shop.table.update(&grant, &change).await.unwrap();

        assert_eq!(written, Written::Applied, "{word}");
        let again = shop.table.update(&grant, &change).await.unwrap();
        assert_eq!(again, Written::Unexpected, "{word}");
    }
}

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}
