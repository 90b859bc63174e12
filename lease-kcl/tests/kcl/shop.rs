//! A table with one shard's row, and helpers that write to the row as KCL workers do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::conformance::SkewedClock;
use lease_core::store::{Claim, Clock, Grant, LeaseTable, LockStore, Nonce, Obtained};
use lease_core::{Change, Holder, LeaseKey, Written};
use lease_kcl::{KclTable, KclTableBuilder};
use lease_memory::MemoryStore;
use lease_test_servers::dynamodb::Server;

pub(crate) struct Shop {
    pub(crate) table: KclTable,
    pub(crate) client: Client,
    clock: Arc<SkewedClock>,
    _server: Server,
}

/// This time passes only if the test calls [`Shop::pass`].
pub(crate) const TTL: Duration = Duration::from_mins(10);

impl Shop {
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(set_up: impl FnOnce(KclTableBuilder) -> KclTableBuilder) -> Self {
        let server = Server::dynoxide().await;
        let client = server.client();
        let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let builder = KclTable::builder(client.clone(), "shop", Arc::new(MemoryStore::new()))
            .with_failover_time(TTL)
            .with_request_timeout(Duration::from_secs(30))
            .with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        let table = set_up(builder).build().unwrap();
        table.ensure_table().await.unwrap();
        Self { table, client, clock, _server: server }
    }

    pub(crate) fn pass(&self, length: Duration) {
        self.clock.leap(length);
    }

    pub(crate) async fn put(&self, owner: Option<&str>) {
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
            ("attributeOfLaterKcl".to_owned(), AttributeValue::Bool(true)),
        ]);
        if let Some(owner) = owner {
            row.insert("leaseOwner".to_owned(), s(owner));
        }
        let request = self.client.put_item().table_name("shop").set_item(Some(row));
        request.send().await.unwrap();
    }

    pub(crate) async fn raw(&self) -> HashMap<String, AttributeValue> {
        let request = self.client.get_item().table_name("shop").consistent_read(true);
        let answer = request.key("leaseKey", s("shardId-1")).send().await.unwrap();
        answer.item.unwrap_or_default()
    }

    pub(crate) async fn counter(&self) -> u64 {
        self.raw().await["leaseCounter"].as_n().unwrap().parse().unwrap()
    }

    /// Sends the update of a KCL worker, which requires the counter `seen`.
    pub(crate) async fn kcl_writes(
        &self,
        seen: u64,
        changes: &str,
        values: &[(&str, &str)],
    ) -> bool {
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

    pub(crate) async fn kcl_takes(&self, worker: &str) -> bool {
        let seen = self.counter().await;
        let changes = "SET leaseOwner = :me, leaseCounter = :next REMOVE checkpointOwner";
        self.kcl_writes(seen, changes, &[(":me", worker)]).await
    }

    pub(crate) async fn kcl_renews(&self) -> bool {
        let seen = self.counter().await;
        self.kcl_writes(seen, "SET leaseCounter = :next", &[]).await
    }

    /// KCL 3's leader does not change the counter.
    pub(crate) async fn kcl_hands_over(&self, from: &str, to: &str) {
        let changes = "SET leaseOwner = :to, checkpointOwner = :from";
        let seen = self.counter().await;
        assert!(self.kcl_writes(seen, changes, &[(":from", from), (":to", to)]).await);
    }

    pub(crate) async fn ask(&self, lessee: &str) -> Obtained {
        self.table.obtain(&claim(lessee)).await.unwrap()
    }

    pub(crate) async fn granted(&self, lessee: &str) -> Grant {
        match self.ask(lessee).await {
            Obtained::Granted(grant, _) => grant,
            Obtained::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    pub(crate) async fn refused(&self, lessee: &str) -> Holder {
        match self.ask(lessee).await {
            Obtained::Held(holder) => holder,
            Obtained::Granted(grant, _) => panic!("{grant:?}"),
        }
    }

    /// Asserts that `lessee` is refused for two failover times while the KCL worker `owner` renews.
    pub(crate) async fn is_left_alone_by(&self, lessee: &str, owner: &str) {
        assert_eq!(self.refused(lessee).await.lessee.as_str(), owner);
        for _ in 0..4 {
            self.pass(TTL / 2);
            assert!(self.kcl_renews().await);
            assert_eq!(self.refused(lessee).await.lessee.as_str(), owner, "{owner} renews");
        }
    }

    pub(crate) async fn checkpoint(&self, grant: &Grant, from: &str, to: &str) -> Written {
        let change = Change::new().expecting("checkpoint", from).set("checkpoint", to);
        self.table.update(grant, &change).await.unwrap()
    }
}

pub(crate) fn key() -> LeaseKey {
    "shop/shards/shardId-1".parse().unwrap()
}

pub(crate) fn claim(lessee: &str) -> Claim {
    Claim::new(key(), lessee.parse().unwrap(), Nonce::random(), TTL)
}

pub(crate) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
