//! Rows as KCL writes them, on a live server: what this crate does to them, and what it leaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use futures_util::TryStreamExt;
use lease_core::{
    Attributes, Beat, Change, Claim, Grant, Heartbeat, Holder, LeaseKey, LeaseTable, Lessee,
    LockStore, LossCause, Nonce, Obtained, StoreErrorKind, Value, Written,
};
use lease_kinesis::{InitialPosition, KclTable, KclTableBuilder};
use lease_memory::MemoryStore;
use lease_tests::dynamodb::Server;

/// One table, and a hand that writes to it as workers of KCL do.
struct Shop {
    table: KclTable,
    client: Client,
    _server: Server,
}

const TTL: Duration = Duration::from_millis(600);

impl Shop {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(set_up: impl FnOnce(KclTableBuilder) -> KclTableBuilder) -> Self {
        let server = Server::dynoxide().await;
        let client = server.client();
        let builder = KclTable::builder(client.clone(), "shop", Arc::new(MemoryStore::new()))
            .with_failover_time(TTL);
        let table = set_up(builder).build().unwrap();
        table.ensure_table().await.unwrap();
        Self { table, client, _server: server }
    }

    /// Puts a row of KCL's: unowned, or owned.
    async fn put(&self, owner: Option<&str>) {
        let mut row = HashMap::from([
            ("leaseKey".to_owned(), s("shardId-1")),
            ("leaseCounter".to_owned(), n(7)),
            ("ownerSwitchesSinceCheckpoint".to_owned(), n(0)),
            ("checkpoint".to_owned(), s("10")),
            ("checkpointSubSequenceNumber".to_owned(), n(0)),
            ("pendingCheckpoint".to_owned(), s("15")),
            ("pendingCheckpointSubSequenceNumber".to_owned(), n(0)),
            ("pendingCheckpointState".to_owned(), n(0)),
            ("parentShardId".to_owned(), AttributeValue::Ss(vec!["shardId-0".to_owned()])),
            ("throughputKBps".to_owned(), AttributeValue::N("1.500000".to_owned())),
            ("whatever comes next".to_owned(), AttributeValue::Bool(true)),
        ]);
        if let Some(owner) = owner {
            row.insert("leaseOwner".to_owned(), s(owner));
        }
        let request = self.client.put_item().table_name("shop").set_item(Some(row));
        request.send().await.unwrap();
    }

    async fn raw(&self) -> HashMap<String, AttributeValue> {
        let request = self.client.get_item().table_name("shop").consistent_read(true);
        let answer = request.key("leaseKey", s("shardId-1")).send().await.unwrap();
        answer.item.unwrap_or_default()
    }

    async fn counter(&self) -> u64 {
        self.raw().await["leaseCounter"].as_n().unwrap().parse().unwrap()
    }

    /// An update as a worker of KCL makes it: if nobody else has written, it counts, and `changes`.
    /// Says whether it was applied.
    async fn kcl_writes(&self, seen: u64, changes: &str, values: &[(&str, &str)]) -> bool {
        let mut request = self
            .client
            .update_item()
            .table_name("shop")
            .key("leaseKey", s("shardId-1"))
            .condition_expression("leaseCounter = :seen")
            .update_expression(changes)
            .expression_attribute_values(":seen", n(seen));
        if changes.contains(":next") {
            request = request.expression_attribute_values(":next", n(seen + 1));
        }
        for (name, value) in values {
            request = request.expression_attribute_values(*name, s(value));
        }
        request.send().await.is_ok()
    }

    async fn kcl_takes(&self, worker: &str) -> bool {
        let seen = self.counter().await;
        let changes = "SET leaseOwner = :me, leaseCounter = :next REMOVE checkpointOwner";
        self.kcl_writes(seen, changes, &[(":me", worker)]).await
    }

    async fn kcl_renews(&self) -> bool {
        let seen = self.counter().await;
        self.kcl_writes(seen, "SET leaseCounter = :next", &[]).await
    }

    /// KCL 3's leader asks for a hand-over: the counter stays.
    async fn kcl_hands_over(&self, from: &str, to: &str) {
        let changes = "SET leaseOwner = :to, checkpointOwner = :from";
        let seen = self.counter().await;
        assert!(self.kcl_writes(seen, changes, &[(":from", from), (":to", to)]).await);
    }

    async fn ask(&self, lessee: &str) -> Obtained {
        self.table.obtain(&claim(lessee)).await.unwrap()
    }

    async fn granted(&self, lessee: &str) -> Grant {
        match self.ask(lessee).await {
            Obtained::Granted(grant, _) => grant,
            Obtained::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    async fn refused(&self, lessee: &str) -> Holder {
        match self.ask(lessee).await {
            Obtained::Held(holder) => holder,
            Obtained::Granted(grant, _) => panic!("{grant:?}"),
        }
    }

    async fn checkpoint(&self, grant: &Grant, from: &str, to: &str) -> Written {
        let change = Change::new().expecting("checkpoint", from).set("checkpoint", to);
        self.table.update(grant, &change).await.unwrap()
    }
}

fn key() -> LeaseKey {
    "shop/shards/shardId-1".parse().unwrap()
}

fn claim(lessee: &str) -> Claim {
    Claim::new(key(), lessee.parse().unwrap(), Nonce::random(), TTL)
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[tokio::test]
async fn what_kcl_and_others_keep_on_a_row_survives_all_that_is_done_to_it() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let before = shop.raw().await;

    let grant = shop.granted("a").await;
    shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
    shop.table.release(&grant, None).await.unwrap();

    let after = shop.raw().await;
    for name in ["parentShardId", "throughputKBps", "whatever comes next", "leaseKey"] {
        assert_eq!(after.get(name), before.get(name), "{name}");
    }
    assert_eq!(after["checkpoint"], s("20"));
    assert!(!after.contains_key("leaseOwner"), "it is free for KCL, too");
    // Once for each write, as KCL counts, and once more for the grant.
    assert_eq!(after["leaseCounter"], n(7 + 5));
}

#[tokio::test]
async fn a_checkpoint_forgets_what_kcl_had_prepared() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;
    assert!(shop.raw().await.contains_key("pendingCheckpoint"));

    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);

    let pending: Vec<_> = shop.raw().await.into_keys().filter(|n| n.contains("pending")).collect();
    assert_eq!(pending, [""; 0]);
}

#[tokio::test]
async fn what_kcl_has_stolen_is_lost_and_cannot_be_checkpointed() {
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

/// KCL 3's leader may give a lease away and back: the name is the same, and what was between is not
/// known.
#[tokio::test]
async fn what_was_anothers_meanwhile_is_not_had_again_by_name() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    assert!(shop.kcl_takes("kcl").await);
    assert!(shop.kcl_takes("a").await);

    let written = shop.checkpoint(&grant, "10", "20").await;
    assert_eq!(written, Written::Lost(LossCause::Superseded));
    let lost = Heartbeat::Lost(LossCause::Superseded);
    assert_eq!(shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap(), lost);
}

#[tokio::test]
async fn every_write_of_ours_refuses_a_worker_of_kcl_that_saw_the_row_before() {
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
async fn a_lease_of_kcl_is_taken_when_its_counter_has_stood_still_for_the_failover_time() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;

    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl");
    for _ in 0..4 {
        tokio::time::sleep(TTL / 2).await;
        assert!(shop.kcl_renews().await);
        assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl", "it renews");
    }
    tokio::time::sleep(TTL.mul_f64(1.1)).await;

    let grant = shop.granted("a").await;
    assert_eq!(grant.lessee.as_str(), "a");
}

#[tokio::test]
async fn what_kcl_3_hands_over_is_its_processors_for_as_long_as_that_renews() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.kcl_hands_over("kcl-1", "a").await;

    // However long it takes: its leader ends it. Not even its next owner comes before.
    for _ in 0..4 {
        assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-1");
        assert_eq!(shop.refused("b").await.lessee.as_str(), "kcl-1");
        tokio::time::sleep(TTL / 2).await;
        assert!(shop.kcl_renews().await);
    }

    let row = shop.raw().await;
    assert_eq!((&row["leaseOwner"], &row["checkpointOwner"]), (&s("a"), &s("kcl-1")));
}

/// As KCL 3 does: what a fleet was handing over when it was stopped has run out like all else.
#[tokio::test]
async fn what_kcl_3_was_handing_over_is_taken_when_its_processor_has_gone() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.kcl_hands_over("kcl-1", "kcl-2").await;
    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-1");
    let seen = shop.counter().await;

    tokio::time::sleep(TTL.mul_f64(1.1)).await;
    assert_eq!(shop.table.read(&key()).await.unwrap().unwrap().holder, None, "it shows as free");
    let grant = shop.granted("a").await;

    let row = shop.raw().await;
    assert_eq!((&row["leaseOwner"], row.get("checkpointOwner")), (&s("a"), None));
    assert_eq!(row["checkpoint"], s("10"), "it is gone on with from there");
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
    let renewal = "SET leaseCounter = :next";
    assert!(!shop.kcl_writes(seen, renewal, &[]).await, "a processor that comes back is refused");
}

#[tokio::test]
async fn what_kcl_3_hands_over_from_us_is_lost_to_us() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;
    shop.kcl_hands_over("a", "a").await;
    let before = shop.raw().await;

    let lost = Heartbeat::Lost(LossCause::Superseded);
    assert_eq!(shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap(), lost);
    let written = shop.checkpoint(&grant, "10", "20").await;
    assert_eq!(written, Written::Lost(LossCause::Superseded));
    assert_eq!(shop.raw().await, before);
}

/// Nothing on the row tells an assignment by KCL 3's leader from a worker of KCL that has our name, as
/// one has whose `workerId` was carried over with its properties.
#[tokio::test]
async fn what_a_worker_of_kcl_with_our_name_renews_is_not_ours() {
    let shop = Shop::new().await;
    shop.put(Some("a")).await;

    for _ in 0..4 {
        assert_eq!(shop.refused("a").await.lessee.as_str(), "a");
        tokio::time::sleep(TTL / 2).await;
        assert!(shop.kcl_renews().await);
    }
    tokio::time::sleep(TTL.mul_f64(1.1)).await;

    shop.granted("a").await;
}

#[tokio::test]
async fn what_kcl_3_assigned_to_us_before_it_was_stopped_is_taken_when_it_has_stood_still() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;

    assert!(shop.kcl_takes("a").await);

    assert_eq!(shop.refused("a").await.lessee.as_str(), "a");
    tokio::time::sleep(TTL.mul_f64(1.1)).await;
    shop.granted("a").await;
}

/// It takes a renewal that was refused for done where its own name stands there with the next counter
/// (`DynamoDBLeaseRefresher.renewLease`).
#[tokio::test]
async fn a_worker_of_kcl_with_our_name_that_was_paused_does_not_take_our_grant_for_its_renewal() {
    let shop = Shop::new().await;
    shop.put(Some("a")).await;
    let seen = shop.counter().await;
    shop.refused("a").await;
    tokio::time::sleep(TTL.mul_f64(1.1)).await;

    let grant = shop.granted("a").await;

    assert!(!shop.kcl_writes(seen, "SET leaseCounter = :next", &[]).await);
    assert_ne!(shop.counter().await, seen + 1, "it would go on");
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
}

/// A worker of KCL takes a row without an owner at its next look, whatever its share.
#[tokio::test]
async fn what_is_transferred_has_an_owner_that_kcl_understands() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    let to: Lessee = "b".parse().unwrap();
    assert_eq!(shop.table.transfer(&grant, &to, TTL).await.unwrap(), Written::Applied);

    assert_eq!(shop.raw().await["leaseOwner"], s("b"));
    assert_eq!(shop.table.read(&key()).await.unwrap().unwrap().holder, None);
    let lost = shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(lost, Heartbeat::Lost(LossCause::Revoked));
    shop.granted("b").await;
}

#[tokio::test]
async fn a_record_that_kcl_has_shows_its_owner_and_one_of_ours_does_not() {
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
async fn what_has_no_row_cannot_be_leased_and_a_late_claim_makes_none() {
    let shop = Shop::new().await;

    let held = shop.refused("a").await;

    assert_eq!(held.expires_in, Some(Duration::ZERO));
    assert!(shop.raw().await.is_empty());
}

#[tokio::test]
async fn a_row_that_is_made_again_begins_with_a_larger_token() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    assert_eq!(shop.table.delete(&grant).await.unwrap(), Written::Applied);
    // Of an answer that was lost.
    assert_eq!(shop.table.delete(&grant).await.unwrap(), Written::Applied);
    assert!(shop.raw().await.is_empty());
    shop.put(None).await;

    assert!(shop.granted("b").await.token > grant.token);
}

#[tokio::test]
async fn a_new_row_is_one_that_kcl_reads() {
    let shop = Shop::new().await;
    let key: LeaseKey = "shop/shards/123456789012:clicks:1700000000:shardId-1".parse().unwrap();
    let attributes = |checkpoint: &str| {
        Attributes::from([
            ("checkpoint".to_owned(), Value::from(checkpoint)),
            ("checkpointTimestamp".to_owned(), Value::from(5_u64)),
        ])
    };

    assert!(shop.table.create(&key, &attributes("AT_TIMESTAMP")).await.unwrap());
    assert!(!shop.table.create(&key, &attributes("TRIM_HORIZON")).await.unwrap());
    let empty = shop.table.create(&self::key(), &Attributes::new()).await;

    assert_eq!(empty.unwrap_err().kind(), StoreErrorKind::Refused);
    let request = shop.client.scan().table_name("shop");
    let rows = request.send().await.unwrap().items.unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row["leaseKey"], s("123456789012:clicks:1700000000:shardId-1"));
    assert_eq!(row["streamName"], s("123456789012:clicks:1700000000"));
    assert_eq!((&row["shardId"], &row["leaseCounter"]), (&s("shardId-1"), &n(0)));
    // Workers of KCL that begin with what arrives have no time for AT_TIMESTAMP.
    assert_eq!(row["checkpoint"], s("LATEST"));
    let read = shop.table.read(&key).await.unwrap().unwrap();
    assert_eq!(read.attributes.get("checkpoint"), Some(&Value::from("AT_TIMESTAMP")));
}

#[tokio::test]
async fn the_first_checkpoint_after_a_word_without_its_time_is_made() {
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
        // What was expected is there no more.
        let again = shop.table.update(&grant, &change).await.unwrap();
        assert_eq!(again, Written::Unexpected, "{word}");
    }
}

#[tokio::test]
async fn only_leases_are_listed_and_what_is_ours_lies_elsewhere() {
    let shop = Shop::new().await;
    shop.put(None).await;
    for (key, entity) in [("Leader", "LEADER"), ("shop/workers/a", "WORKER_METRIC_STATS")] {
        let request = shop.client.put_item().table_name("shop").item("leaseKey", s(key));
        request.item("entityType", s(entity)).send().await.unwrap();
    }
    let worker: LeaseKey = "shop/workers/a".parse().unwrap();
    let claim = Claim::new(worker.clone(), "a".parse().unwrap(), Nonce::random(), TTL);

    let granted = shop.table.obtain(&claim).await.unwrap();

    assert!(matches!(granted, Obtained::Granted(..)));
    let records: Vec<_> = shop.table.list("shop/").try_collect().await.unwrap();
    let keys: Vec<_> = records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["shop/shards/shardId-1", "shop/workers/a"]);
    let shards: Vec<_> = shop.table.list("shop/shards/shardId-2").try_collect().await.unwrap();
    assert_eq!(shards, []);
    let request = shop.client.scan().table_name("shop").send().await.unwrap();
    assert_eq!(request.count, 3, "no row of ours is among KCL's");
}

#[tokio::test]
async fn a_shard_of_another_application_is_refused_and_not_looked_for_elsewhere() {
    let shop = Shop::new().await;
    let other: LeaseKey = "market/shards/shardId-1".parse().unwrap();

    let error = shop.table.read(&other).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn a_table_with_another_key_is_refused_and_says_why() {
    let server = Server::dynoxide().await;
    let client = server.client();
    let attribute = AttributeDefinition::builder()
        .attribute_name("shardId")
        .attribute_type(ScalarAttributeType::S)
        .build();
    let hash = KeySchemaElement::builder().attribute_name("shardId").key_type(KeyType::Hash);
    let request = client.create_table().table_name("shop").billing_mode(BillingMode::PayPerRequest);
    let request = request.attribute_definitions(attribute.unwrap());
    request.key_schema(hash.build().unwrap()).send().await.unwrap();
    let table = KclTable::new(client, "shop", Arc::new(MemoryStore::new())).unwrap();

    let error = table.ensure_table().await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("shardId S HASH") && text.contains("leaseKey S HASH"), "{text}");
}

#[test]
fn values_out_of_range_are_refused_before_any_request() {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .build();
    let client = Client::from_conf(config);
    let builder =
        |name: &str| KclTable::builder(client.clone(), name, Arc::new(MemoryStore::new()));

    assert!(builder("shop").build().is_ok());
    assert!(builder("").build().is_err());
    assert!(builder("shop/shards").build().is_err());
    assert!(builder("shop").with_failover_time(Duration::ZERO).build().is_err());
    assert!(builder("shop").with_request_timeout(Duration::ZERO).build().is_err());
    assert!(builder("shop").with_clock_rate_error(0.2).build().is_err());
}
