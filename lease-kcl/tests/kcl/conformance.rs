//! Tests the promises of `LockStore` and `LeaseTable` on live servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore, Obtained,
};
use lease_core::{
    Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, Value, Written,
};
use lease_kcl::KclTable;
use lease_memory::MemoryStore;
use lease_test_servers::dynamodb::Server;
use lease_test_servers::promises::broken_of_both;
use tokio::sync::OnceCell;

/// The promises that this table cannot keep.
const NOT_KEPT: [&str; 1] = [
    // A deletion leaves no tombstone, so the store refuses a late claim only until the row is created again.
    // The current time is the next token: `tables::recreated_row_starts_with_a_larger_token`.
    "tokens_grow_over_delete",
];

#[test]
fn all_promises_hold_except_the_listed_ones() {
    let server = || Dynoxide { server: OnceCell::new(), ours: Arc::new(MemoryStore::new()) };

    let mut broken = broken_of_both(server);
    broken.sort_unstable();

    assert_eq!(broken, NOT_KEPT);
}

/// A server in this process. Each promise has its own server.
struct Dynoxide {
    server: OnceCell<Server>,
    ours: Arc<dyn LeaseTable>,
}

#[async_trait]
impl Fixture for Dynoxide {
    type Store = OnRows;

    async fn store(&self) -> OnRows {
        let server = self.server.get_or_init(Server::dynoxide).await;
        let table = KclTable::builder(server.client(), "kit", Arc::clone(&self.ours))
            .with_failover_time(self.ttl())
            .with_request_timeout(Duration::from_secs(30))
            .build()
            .unwrap();
        table.ensure_table().await.unwrap();
        OnRows(table)
    }

    async fn another(&self, _store: &OnRows) -> OnRows {
        self.store().await
    }

    async fn reopen(&self, store: OnRows) -> Reopened<OnRows> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

/// Maps all keys of the kit to rows of shards, and creates these rows with a checkpoint.
#[derive(Debug)]
struct OnRows(KclTable);

const PREFIX: &str = "kit/shards/";

impl OnRows {
    async fn made(&self, key: &LeaseKey) -> LeaseKey {
        let key = on_row(key);
        self.0.create(&key, &with_checkpoint(&Attributes::new())).await.unwrap();
        key
    }
}

fn on_row(key: &LeaseKey) -> LeaseKey {
    format!("{PREFIX}{key}").parse().unwrap()
}

fn off_row(key: &LeaseKey) -> LeaseKey {
    key.as_str().strip_prefix(PREFIX).unwrap().parse().unwrap()
}

fn with_checkpoint(attributes: &Attributes) -> Attributes {
    let mut attributes = attributes.clone();
    attributes.entry("checkpoint".to_owned()).or_insert_with(|| "TRIM_HORIZON".into());
    attributes
}

fn without_checkpoint(mut attributes: Attributes) -> Attributes {
    if attributes.get("checkpoint").and_then(Value::as_text) == Some("TRIM_HORIZON") {
        attributes.remove("checkpoint");
    }
    attributes
}

fn granted_on_row(grant: &Grant) -> Grant {
    Claim::new(on_row(&grant.key), grant.lessee.clone(), grant.nonce, grant.ttl)
        .granted(grant.token)
}

fn off_rows(obtained: Obtained) -> Obtained {
    match obtained {
        Obtained::Granted(mut grant, attributes) => {
            grant.key = off_row(&grant.key);
            Obtained::Granted(grant, without_checkpoint(attributes))
        }
        held @ Obtained::Held(_) => held,
    }
}

fn record_off_row(record: LeaseRecord) -> LeaseRecord {
    let attributes = without_checkpoint(record.attributes);
    LeaseRecord::new(off_row(&record.key), record.holder, record.token, attributes)
}

#[async_trait]
impl LockStore for OnRows {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut claim = claim.clone();
        claim.key = self.made(&claim.key).await;
        Ok(off_rows(self.0.obtain(&claim).await?))
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.0.heartbeat(&granted_on_row(grant), beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.0.release(&granted_on_row(grant), reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut claim = claim.clone();
        claim.key = on_row(&claim.key);
        Ok(off_rows(self.0.adopt(&granted_on_row(grant), &claim).await?))
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.0.holder(&on_row(key)).await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.0.evict(&on_row(key), grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let held =
            |record: Result<LeaseRecord, _>| ready(record.map(LeaseRecord::into_held).transpose());
        self.list(prefix).filter_map(held).boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.0.watch(&on_row(key)).await
    }

    fn grain(&self) -> Duration {
        self.0.grain()
    }
}

#[async_trait]
impl LeaseTable for OnRows {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.0.read(&on_row(key)).await?.map(record_off_row))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let records = self.0.list(&format!("{PREFIX}{prefix}"));
        records.map(|record| record.map(record_off_row)).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.0.create(&on_row(key), &with_checkpoint(attributes)).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        self.0.update(&granted_on_row(grant), change).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.0.transfer(&granted_on_row(grant), to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.0.delete(&granted_on_row(grant)).await
    }
}
