//! The store: one conditional write per lock operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use futures_util::StreamExt;
use futures_util::future::ready;
use lease_aws::table_client::{
    Advice, Expression, Payload, RawItem, ReturnItem, Table, TableClient, WriteOutcome, store_error,
};
use lease_core::store::{
    Beat, BoxStream, Claim, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore, Moment,
    Observations, Obtained, ServerClock, ServerNow, Sessions,
};
use lease_core::{GrantId, Holder, LeaseKey, LossCause, StoreError, StoreErrorKind};
use tracing::debug;

use crate::items::{
    Column, Item, Observed, lock_client_columns, lock_client_error, to_payload,
    too_many_columns_error,
};
use crate::lease_state::{LeaseState, last_holder, why_lost};
use crate::settings::Settings;
use crate::time::DateInterceptor;
use crate::write::{self, Purge, StaleItem};

/// Stores leases in a DynamoDB table. Clones share the connections and the known bounds of
/// DynamoDB's time.
///
/// Each operation is one conditional write to one item. The [crate's page](crate) documents the
/// table's layout, the costs, and the behaviour under faults.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use lease_core::{LeaseOptions, Locker};
/// use lease_dynamodb::DynamoDbStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = lease_test_servers::dynamodb::Server::dynoxide().await;
/// # let client = server.client();
/// let store = DynamoDbStore::builder(client, "leases")
///     .with_request_timeout(Duration::from_secs(2))
///     .build()?;
/// store.ensure_table().await?;
///
/// let locker = Locker::new(store);
/// let lease = locker.wait_until_obtained(&"payroll/2026-11".parse()?).await?;
/// println!("obtained with token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DynamoDbStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) table: TableClient,
    pub(crate) settings: Settings,
    pub(crate) time: Arc<ServerClock>,
    pub(crate) observations: Observations<Observed>,
}

impl DynamoDbStore {
    pub(crate) fn with(client: &Client, settings: Settings) -> Self {
        let timing = &settings.timing;
        let time = Arc::new(ServerClock::new(Arc::clone(&timing.clock), timing.clock_rate_error));
        // The user's client with its connections, and an interceptor that reads dates.
        let interceptor = DateInterceptor(Arc::clone(&time));
        let config = client.config().to_builder().interceptor(interceptor).build();
        let table = Table {
            name: settings.table.clone(),
            key: settings.columns.name(Column::Key).to_owned(),
            advice: ADVICE,
        };
        let table = TableClient::new(Client::from_conf(config), table, timing.request_timeout);
        let observations = Observations::new(settings.observations);
        Self { shared: Arc::new(Shared { table, settings, time, observations }) }
    }

    pub(crate) async fn write(
        &self,
        key: &LeaseKey,
        write: Expression,
        returned: ReturnItem,
    ) -> Result<WriteOutcome, StoreError> {
        let columns = &self.shared.settings.columns;
        let write = write.render(|placeholder| columns.of_placeholder(placeholder));
        self.shared.table.update(key.as_str(), write, returned).await
    }

    pub(crate) fn now(&self) -> Option<ServerNow> {
        self.shared.time.now()
    }

    /// Returns the item of a refused write. Reads it if the answer did not contain it: some servers
    /// other than AWS never return it.
    pub(crate) async fn refused_item(
        &self,
        key: &LeaseKey,
        refused: Option<RawItem>,
    ) -> Result<Option<Item>, StoreError> {
        let raw = self.refused_raw(key, refused).await?;
        raw.map(|raw| self.item(key, raw)).transpose()
    }

    pub(crate) async fn refused_raw(
        &self,
        key: &LeaseKey,
        refused: Option<RawItem>,
    ) -> Result<Option<RawItem>, StoreError> {
        match refused {
            Some(raw) => Ok(Some(raw)),
            None => self.shared.table.get(key.as_str()).await,
        }
    }

    pub(crate) fn item(&self, key: &LeaseKey, raw: RawItem) -> Result<Item, StoreError> {
        Item::read(key.as_str(), raw, &self.shared.settings.columns)
    }

    /// Returns the state of an item that was received just now.
    pub(crate) fn state(
        &self,
        key: &LeaseKey,
        item: &Item,
        default_ttl: Option<Duration>,
    ) -> LeaseState {
        let shared = &self.shared;
        LeaseState::of(
            key,
            item,
            default_ttl,
            &shared.settings,
            &shared.time,
            &shared.observations,
            self.moment(),
        )
    }

    pub(crate) fn holder_of(&self, key: &LeaseKey, item: &Item) -> Option<Holder> {
        match self.state(key, item, None) {
            LeaseState::Held(holder) => Some(holder),
            LeaseState::Free | LeaseState::Reserved(_) | LeaseState::Expired(_) => None,
        }
    }

    /// Returns the observed item of the key if it has been unchanged for the holder's whole ttl.
    ///
    /// `item` is the item that was received just now, if the caller has one. The store compares an
    /// item of another program by all its columns, which only `item` contains. An item without a ttl must
    /// be unchanged for `default_ttl`. Fails if an item of another program has too many columns.
    pub(crate) fn stale_item(
        &self,
        key: &LeaseKey,
        default_ttl: Option<Duration>,
        item: Option<&Item>,
    ) -> Result<Option<StaleItem>, StoreError> {
        let shared = &self.shared;
        let Some(observation) = shared.observations.get(key.as_str()) else {
            return Ok(None);
        };
        let Some(ttl) = observation.ttl.or(default_ttl) else {
            return Ok(None);
        };
        let foreign = match item {
            Some(item) if item.observed() == observation.state => item.foreign.clone(),
            _ if observation.state.foreign.is_none() => None,
            _ => return Ok(None),
        };
        if self.moment().since(observation.since) < shared.time.with_skew(ttl) {
            return Ok(None);
        }
        if let Some(foreign) = &foreign
            && foreign.proof(&shared.settings.columns).is_none()
        {
            return Err(too_many_columns_error(key, shared.table.name(), foreign));
        }
        Ok(Some(StaleItem { observed: observation.state, foreign }))
    }

    /// Reads the item before a write if it was recently held or reserved: a read costs a fifth of a
    /// refused write. Always reads an item that another program may have written.
    async fn read_before_write(&self, claim: &Claim) -> Result<Option<Item>, StoreError> {
        let Some(observation) = self.shared.observations.get(claim.key.as_str()) else {
            return Ok(None);
        };
        let recently = self.moment().since(observation.last) < observation.ttl.unwrap_or(claim.ttl);
        if !recently && observation.state.foreign.is_none() {
            return Ok(None);
        }
        let raw = self.shared.table.get(claim.key.as_str()).await?;
        raw.map(|raw| self.leasable_item(&claim.key, raw)).transpose()
    }

    /// Parses an item to lease. Fails if Amazon's lock client wrote it and the store refuses such
    /// items.
    pub(crate) fn leasable_item(&self, key: &LeaseKey, raw: RawItem) -> Result<Item, StoreError> {
        let shared = &self.shared;
        let lock_client_column = lock_client_columns(&shared.settings.columns)
            .find(|name| !shared.settings.lock_client_items && raw.contains_key(*name));
        match lock_client_column {
            Some(column) => Err(lock_client_error(key, shared.table.name(), column)),
            None => self.item(key, raw),
        }
    }

    pub(crate) fn claim_payload(&self, claim: &Claim) -> Result<Payload, StoreError> {
        let attributes = claim.attributes.iter().map(|(name, value)| (name.as_str(), value));
        to_payload(&claim.key, attributes, &self.shared.settings.columns)
    }

    fn moment(&self) -> Moment {
        self.shared.time.clock().now()
    }

    /// Returns the grant that `item` contains. Adds columns that the write could not compute.
    pub(crate) async fn granted(&self, grant: Grant, item: Item) -> Obtained {
        let shared = &self.shared;
        shared.observations.forget(grant.key.as_str());
        let now = self.now();
        let lacks_expiry = grant.parent.is_none() && item.expires_at.is_none() && now.is_some();
        let lacks_mark =
            shared.settings.retention.is_some() && !item.lasting && !item.attributes.is_empty();
        if lacks_expiry || lacks_mark {
            let purge = if lacks_mark { Purge::Never } else { Purge::AsMarked };
            let write = write::complete_grant(&grant, &shared.settings, now, purge);
            // The grant is valid without this write: the first heartbeat sets the expiry, too.
            if let Err(error) = self.write(&grant.key, write, ReturnItem::Never).await {
                debug!(
                    key = %grant.key, error = &error as &dyn std::error::Error,
                    "second write of a grant failed"
                );
            }
        }
        Obtained::Granted(grant, item.attributes)
    }

    /// Returns the answer to a claim if `item` decides it. `None` if the claim may take the key.
    pub(crate) async fn answer(&self, claim: &Claim, item: &Item) -> Option<Obtained> {
        let holder = self.refusal(claim, item)?;
        let own = item.has_nonce(claim.nonce) && item.lessee.as_ref() == Some(&claim.lessee);
        if own && holder.expires_in != Some(Duration::ZERO) {
            // DynamoDB granted an earlier request, and the answer was lost.
            let grant = claim.granted_before(item.token_or_zero);
            return Some(self.granted(grant, item.clone()).await);
        }
        Some(Obtained::Held(holder))
    }

    /// Returns the holder that blocks a claim. `None` if the claim may take the key.
    fn refusal(&self, claim: &Claim, item: &Item) -> Option<Holder> {
        match self.state(&claim.key, item, Some(claim.ttl)) {
            LeaseState::Held(holder) => {
                if holder.parent.is_some() {
                    // So that the next attempt reads before it writes.
                    let (state, ttl) = (item.observed(), Some(write::UNDER_SESSION));
                    self.shared.observations.observe(claim.key.as_str(), state, ttl, self.moment());
                }
                Some(holder)
            }
            // The nonce shows that the claim is a duplicate, whose own grant has expired.
            LeaseState::Expired(holder) => item.has_nonce(claim.nonce).then_some(holder),
            LeaseState::Free => {
                item.has_nonce(claim.nonce).then(|| last_holder(claim, item, Some(Duration::ZERO)))
            }
            LeaseState::Reserved(_) if item.offered_to.as_ref() == Some(&claim.lessee) => None,
            LeaseState::Reserved(left) => Some(last_holder(claim, item, left)),
        }
    }
}

#[async_trait]
impl LockStore for DynamoDbStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let shared = &self.shared;
        let payload = self.claim_payload(claim)?;
        let mut seen = self.read_before_write(claim).await?;
        let mut last_attempt = false;
        loop {
            if let Some(item) = &seen
                && let Some(answer) = self.answer(claim, item).await
            {
                return Ok(answer);
            }
            let purge = match &seen {
                // The operator or another program made the item.
                Some(item) if item.token.is_none() => Purge::Never,
                _ => Purge::AsMarked,
            };
            let stale = self.stale_item(&claim.key, Some(claim.ttl), seen.as_ref())?;
            let (payload, now) = (payload.clone(), self.now());
            let write = write::obtain(claim, payload, &shared.settings, now, stale.as_ref(), purge);
            let refused = match self.write(&claim.key, write, ReturnItem::Always).await? {
                WriteOutcome::Applied(raw) => {
                    let item = self.item(&claim.key, raw)?;
                    return Ok(self.granted(claim.granted(item.token_or_zero), item).await);
                }
                WriteOutcome::Refused(refused) => self.refused_raw(&claim.key, refused).await?,
            };

            seen = refused.map(|raw| self.leasable_item(&claim.key, raw)).transpose()?;
            if shared.settings.existing_only && seen.as_ref().is_none_or(|item| item.deleted) {
                return Err(missing_item(claim, shared.table.name()));
            }
            if last_attempt {
                let Some(item) = seen else {
                    return Err(changes_too_fast(&claim.key));
                };
                let answer = self.answer(claim, &item).await;
                let left = Some(Duration::ZERO);
                return Ok(
                    answer.unwrap_or_else(|| Obtained::Held(last_holder(claim, &item, left)))
                );
            }
            // The refusal contained DynamoDB's time and the current item, or no item if it was
            // removed. With this knowledge, the next write may take the key.
            last_attempt = true;
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let shared = &self.shared;
        let outcome = self
            .write(
                &grant.key,
                write::heartbeat(grant, beat, &shared.settings, self.now()),
                ReturnItem::IfRefused,
            )
            .await?;
        let WriteOutcome::Refused(refused) = outcome else {
            return Ok(Heartbeat::Extended);
        };
        let Some(item) = self.refused_item(&grant.key, refused).await? else {
            return Ok(Heartbeat::Lost(LossCause::Expired));
        };
        let overtaken = item.beat.is_some_and(|last| last >= beat);
        Ok(if self.is_current(grant, &item) && overtaken && !item.evicted {
            Heartbeat::Overtaken
        } else {
            Heartbeat::Lost(why_lost(grant, Some(&item)))
        })
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let shared = &self.shared;
        // A refused release changes nothing: the key was released before, or has another holder.
        self.write(
            &grant.key,
            write::release(grant, &shared.settings, self.now(), reserved),
            ReturnItem::Never,
        )
        .await?;
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let payload = self.claim_payload(claim)?;
        let write = write::adopt(grant, claim, payload, &self.shared.settings, self.now());
        let refused = match self.write(&grant.key, write, ReturnItem::Always).await? {
            WriteOutcome::Applied(raw) => {
                let item = self.item(&claim.key, raw)?;
                return Ok(self.granted(claim.granted(item.token_or_zero), item).await);
            }
            WriteOutcome::Refused(refused) => refused,
        };
        let former = grant.holder(Some(Duration::ZERO));
        let Some(item) = self.refused_item(&claim.key, refused).await? else {
            return Ok(Obtained::Held(former));
        };
        match self.holder_of(&claim.key, &item) {
            // An earlier request adopted the grant, and the answer was lost.
            Some(_) if item.has_nonce(claim.nonce) => {
                Ok(self.granted(claim.granted_before(item.token_or_zero), item).await)
            }
            Some(holder) => Ok(Obtained::Held(holder)),
            None => Ok(Obtained::Held(former)),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let Some(raw) = self.shared.table.get(key.as_str()).await? else {
            return Ok(None);
        };
        let item = self.item(key, raw)?;
        Ok(self.holder_of(key, &item))
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let Some(token) = grant.token() else { return Ok(false) };
        let write = write::evict(token, &self.shared.settings, self.now());
        let WriteOutcome::Refused(refused) = self.write(key, write, ReturnItem::IfRefused).await?
        else {
            return Ok(true);
        };
        let item = self.refused_item(key, refused).await?;
        if item.is_some_and(|item| item.token == Some(token) && item.parent.is_some()) {
            let text = "a lease under a session cannot be evicted: evict its session";
            return Err(store_error(StoreErrorKind::Refused, text));
        }
        Ok(false)
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let records = self.list(prefix);
        records.filter_map(|record| ready(record.map(LeaseRecord::into_held).transpose())).boxed()
    }

    /// `None` with [`with_lock_client_items`](crate::DynamoDbStoreBuilder::with_lock_client_items): the lock
    /// client changes items without a larger token.
    fn sessions(&self) -> Option<&dyn Sessions> {
        (!self.shared.settings.lock_client_items).then_some(self)
    }

    /// Expiries are stored in whole milliseconds.
    fn grain(&self) -> Duration {
        Duration::from_millis(1)
    }
}

impl DynamoDbStore {
    /// Whether `grant` is current according to `item`.
    pub(crate) fn is_current(&self, grant: &Grant, item: &Item) -> bool {
        item.has_grant(grant)
            && item.lessee.as_ref() == Some(&grant.lessee)
            && !self.has_expired(item)
    }

    /// Whether the lease of `item` has certainly expired in DynamoDB's time.
    fn has_expired(&self, item: &Item) -> bool {
        match (item.expires_at, self.now()) {
            (Some(expires_at), Some(now)) => {
                expires_at.plus(self.shared.settings.margin) <= now.lowest
            }
            _ => false,
        }
    }
}

pub(crate) fn missing_item(claim: &Claim, table: &str) -> StoreError {
    store_error(
        StoreErrorKind::Misconfigured,
        format!(
            "item {:?} does not exist in table {table}, and the store leases existing items only: \
             create it, or correct the key",
            claim.key.as_str()
        ),
    )
}

pub(crate) fn changes_too_fast(key: &LeaseKey) -> StoreError {
    store_error(
        StoreErrorKind::Unavailable,
        format!("item {:?} was created or removed between two requests", key.as_str()),
    )
}

const ADVICE: Advice = Advice {
    missing: "create it with `DynamoDbStore::ensure_table()`",
    other_key: "name the key column with `with_column(Column::Key, …)`, or use another table",
};

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore")
            .field("table", &self.shared.table.name())
            .finish_non_exhaustive()
    }
}
