//! The store: each change of a shard's row is one conditional write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use futures_util::StreamExt;
use futures_util::future::ready;
use lease_aws::table_client::{
    Advice, Expression, RawItem, ReturnItem, Table, TableClient, Timing, WriteOutcome,
    corrupt_column, store_error,
};
use lease_core::store::{
    Beat, BoxStream, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore,
    Moment, Observations, Obtained, micros_since_1970,
};
use lease_core::{
    Change, FencingToken, GrantId, Holder, LeaseKey, Lessee, LossCause, StoreError, StoreErrorKind,
};
use lease_kinesis::{Application, InitialPosition};
use parking_lot::{Mutex, MutexGuard};

use crate::liveness::{LeaseState, Liveness};
use crate::row::{COUNTER, LEASE_KEY, Row, no_token};
use crate::write;

/// Keeps leases in a lease table of the Kinesis Client Library (KCL).
///
/// The rows of shards are in KCL's table. The rows of our [workers](lease_kinesis::Worker) are in another
/// store, because KCL reads each row of its table as a lease. Every change of a row is one conditional write.
/// Clones share one table.
///
/// See [the crate's page](crate#what-happens-when-something-fails) for faults.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use lease_core::store::LeaseTable;
/// use lease_kcl::KclTable;
///
/// # async fn open(
/// #     client: aws_sdk_dynamodb::Client,
/// #     workers: Arc<dyn LeaseTable>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let table = KclTable::new(client, "payments", workers)?;
/// table.ensure_table().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KclTable {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) requests: TableClient,
    /// KCL's lease key follows this prefix.
    pub(crate) shards: String,
    pub(crate) ours: Arc<dyn LeaseTable>,
    pub(crate) settings: Settings,
    pub(crate) observations: Observations<Liveness>,
    /// The leases that the next claim may steal, each with its live owner.
    to_steal: Mutex<BTreeMap<LeaseKey, Lessee>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) failover: Duration,
    pub(crate) initial: InitialPosition,
    pub(crate) timing: Timing,
    pub(crate) consistent_listing: bool,
}

impl KclTable {
    pub(crate) fn with(
        client: Client,
        table: String,
        application: &Application,
        ours: Arc<dyn LeaseTable>,
        settings: Settings,
    ) -> Self {
        let table = Table { name: table, key: LEASE_KEY.to_owned(), advice: ADVICE };
        let requests = TableClient::new(client, table, settings.timing.request_timeout);
        let shared = Shared {
            requests,
            shards: application.shards_prefix(),
            ours,
            settings,
            observations: Observations::new(MAX_OBSERVATIONS),
            to_steal: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn failover_time(&self) -> Duration {
        self.shared.settings.failover
    }

    pub(crate) fn initial_position(&self) -> InitialPosition {
        self.shared.settings.initial
    }

    /// `owner` is a live KCL worker. Workers of KCL 1 and 2 steal in the same way.
    pub(crate) fn steal(&self, key: &LeaseKey, owner: &Lessee) {
        self.to_steal().insert(key.clone(), owner.clone());
    }

    /// `None` for rows in the store `ours`. Fails if `key` belongs to a shard of another application.
    pub(crate) fn lease_key<'a>(&self, key: &'a LeaseKey) -> Result<Option<&'a str>, StoreError> {
        if let Some(lease_key) = key.as_str().strip_prefix(&self.shared.shards) {
            return Ok(Some(lease_key));
        }
        let mut parts = key.as_str().splitn(3, '/');
        if let (Some(_), Some("shards"), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            let (table, shards) = (self.shared.requests.name(), &self.shared.shards);
            let text =
                format!("{key} is not a key of table {table}, whose keys start with {shards}");
            return Err(store_error(StoreErrorKind::Misconfigured, text));
        }
        Ok(None)
    }

    pub(crate) async fn write(
        &self,
        lease_key: &str,
        write: Expression,
        returned: ReturnItem,
    ) -> Result<WriteOutcome, StoreError> {
        self.shared.requests.update(lease_key, write.render(write::column), returned).await
    }

    pub(crate) async fn row(&self, lease_key: &str) -> Result<Option<Row>, StoreError> {
        match self.shared.requests.get(lease_key).await? {
            Some(raw) => self.read(lease_key, raw),
            None => Ok(None),
        }
    }

    pub(crate) fn read(&self, lease_key: &str, raw: RawItem) -> Result<Option<Row>, StoreError> {
        Row::read(lease_key, raw, self.shared.settings.initial)
    }

    /// Some servers other than AWS never return the row with a refusal.
    pub(crate) async fn row_after_refusal(
        &self,
        lease_key: &str,
        refused: Option<RawItem>,
    ) -> Result<Option<Row>, StoreError> {
        match refused {
            Some(raw) => self.read(lease_key, raw),
            None => self.row(lease_key).await,
        }
    }

    /// Returns `None` if a claim may take `row` now. Otherwise returns the holder to report.
    fn refusal(&self, claim: &Claim, lease_key: &str, row: &Row) -> Option<Holder> {
        let state = self.state(lease_key, row);
        // The claim is a late duplicate. Its grant was released or lost.
        if row.carries(claim.nonce) {
            return Some(match state {
                LeaseState::Held(holder) | LeaseState::Expired(holder) => holder,
                LeaseState::Reserved(left) => reserved_holder(claim, row, left),
                LeaseState::Free => reserved_holder(claim, row, Duration::ZERO),
            });
        }
        match state {
            LeaseState::Free | LeaseState::Expired(_) => None,
            LeaseState::Reserved(_) if row.owner.as_ref() == Some(&claim.lessee) => None,
            LeaseState::Reserved(left) => Some(reserved_holder(claim, row, left)),
            LeaseState::Held(_) if self.may_take(claim, row) => None,
            LeaseState::Held(holder) => Some(holder),
        }
    }

    /// Whether the claim may take a lease that a KCL worker holds.
    fn may_take(&self, claim: &Claim, row: &Row) -> bool {
        if row.is_ours() || row.processor.is_some() {
            return false;
        }
        // `steal` never names the claim's own lessee.
        self.to_steal().get(&claim.key) == row.owner.as_ref()
            || self.is_assigned(&claim.key, &claim.lessee, false)
            // KCL workers renew the lease of an ended shard until they delete its row, even for ever. Only the
            // removal of the row claims the lease.
            || row.has_ended()
    }

    /// If this time has passed on one clock, `ttl` has passed on all clocks.
    pub(crate) fn with_margin(&self, ttl: Duration) -> Duration {
        ttl.mul_f64(1.0 + self.shared.settings.timing.clock_rate_error)
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.settings.timing.clock.now()
    }

    fn to_steal(&self) -> MutexGuard<'_, BTreeMap<LeaseKey, Lessee>> {
        self.shared.to_steal.lock()
    }

    async fn take(&self, claim: &Claim, lease_key: &str) -> Result<Obtained, StoreError> {
        let attributes = Change::from(claim.attributes.clone());
        // An invalid attribute is refused even if the lease is held.
        drop(self.changing(Expression::default(), &attributes)?);
        let mut shown = self.row(lease_key).await?;
        let mut tries = 0;
        loop {
            // KCL cannot read a row without a checkpoint. So only the shard sync creates rows.
            let Some(row) = shown else { return Ok(Obtained::Held(missing_holder(claim))) };
            // An earlier attempt of this claim was granted, and the answer was lost.
            let grant = claim.granted_before(row.token_or_zero());
            if row.is_held_by(&grant)
                && let LeaseState::Held(_) = self.state(lease_key, &row)
            {
                return Ok(Obtained::Granted(grant, row.attributes));
            }
            if let Some(holder) = self.refusal(claim, lease_key, &row) {
                return Ok(Obtained::Held(holder));
            }
            if tries == 2 {
                return Ok(Obtained::Held(reserved_holder(claim, &row, Duration::ZERO)));
            }
            tries += 1;
            // The first token is the current time, which is larger than the tokens of a deleted row.
            let next = row.token().map_or_else(micros_since_1970, |last| last.get() + 1);
            let token = FencingToken::new(next)
                .map_err(|refused| corrupt_column(lease_key, "grantToken", refused))?;
            let write = self.changing(write::obtain(claim, token, &row), &attributes)?;
            match self.write(lease_key, write, ReturnItem::Always).await? {
                WriteOutcome::Applied(raw) => {
                    let grant = claim.granted(token);
                    self.observe_heartbeat(lease_key, &grant, Beat::GRANTED);
                    let row = self.read(lease_key, raw)?;
                    let attributes = row.map(|row| row.attributes).unwrap_or_default();
                    return Ok(Obtained::Granted(grant, attributes));
                }
                WriteOutcome::Refused(raw) => {
                    shown = self.row_after_refusal(lease_key, raw).await?;
                }
            }
        }
    }
}

#[async_trait]
impl LockStore for KclTable {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let Some(lease_key) = self.lease_key(&claim.key)? else {
            return self.shared.ours.obtain(claim).await;
        };
        let obtained = self.take(claim, lease_key).await;
        // At the next tick, the worker decides again.
        self.to_steal().remove(&claim.key);
        obtained
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.heartbeat(grant, beat).await;
        };
        if self.has_expired(lease_key, grant) {
            return Ok(Heartbeat::Lost(LossCause::Expired));
        }
        let write = write::heartbeat(grant, beat);
        let refused = match self.write(lease_key, write, ReturnItem::IfRefused).await? {
            WriteOutcome::Applied(_) => {
                self.observe_heartbeat(lease_key, grant, beat);
                return Ok(Heartbeat::Extended);
            }
            WriteOutcome::Refused(raw) => raw,
        };
        let Some(row) = self.row_after_refusal(lease_key, refused).await? else {
            return Ok(Heartbeat::Lost(LossCause::Expired));
        };
        let is_late = row.is_held_by(grant) && !row.evicted() && row.beat() >= beat.get();
        Ok(if is_late {
            Heartbeat::Overtaken
        } else {
            Heartbeat::Lost(why_lost(grant, Some(&row)))
        })
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.release(grant, reserved).await;
        };
        // A refusal is no error: the grant is over.
        self.write(lease_key, write::release(grant, reserved), ReturnItem::Never).await?;
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.adopt(grant, claim).await;
        };
        let gone = grant.holder(Some(Duration::ZERO));
        if self.has_expired(lease_key, grant) {
            return Ok(Obtained::Held(gone));
        }
        let attributes = Change::from(claim.attributes.clone());
        let write = self.changing(write::adopt(grant, claim), &attributes)?;
        let shown = match self.write(lease_key, write, ReturnItem::Always).await? {
            WriteOutcome::Applied(raw) => {
                let row = self.read(lease_key, raw)?;
                let row = row.ok_or_else(|| corrupt_column(lease_key, COUNTER, "absent"))?;
                let grant = claim.granted(row.token_or_zero());
                self.observe_heartbeat(lease_key, &grant, Beat::GRANTED);
                return Ok(Obtained::Granted(grant, row.attributes));
            }
            WriteOutcome::Refused(raw) => self.row_after_refusal(lease_key, raw).await?,
        };
        let Some(row) = shown else { return Ok(Obtained::Held(gone)) };
        let adopted = claim.granted_before(row.token_or_zero());
        match self.holder_of(lease_key, &row) {
            // An earlier attempt of this claim adopted the lease, and the answer was lost.
            Some(_) if row.is_held_by(&adopted) => Ok(Obtained::Granted(adopted, row.attributes)),
            Some(holder) => Ok(Obtained::Held(holder)),
            None => Ok(Obtained::Held(gone)),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let Some(lease_key) = self.lease_key(key)? else {
            return self.shared.ours.holder(key).await;
        };
        let row = self.row(lease_key).await?;
        Ok(row.and_then(|row| self.holder_of(lease_key, &row)))
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let Some(lease_key) = self.lease_key(key)? else {
            return self.shared.ours.evict(key, grant).await;
        };
        let Some(token) = grant.token() else { return Ok(false) };
        let outcome = self.write(lease_key, write::evict(token), ReturnItem::Never).await?;
        Ok(matches!(outcome, WriteOutcome::Applied(_)))
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let records = self.list(prefix);
        records.filter_map(|record| ready(record.map(LeaseRecord::into_held).transpose())).boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        match self.lease_key(key)? {
            Some(_) => Ok(Freed::never()),
            None => self.shared.ours.watch(key).await,
        }
    }

    /// A row stores the ttl in whole milliseconds.
    fn grain(&self) -> Duration {
        self.shared.ours.grain().max(Duration::from_millis(1))
    }
}

/// Correct for table names from code and from a properties file.
const ADVICE: Advice = Advice {
    missing: "create it, or correct its name",
    other_key: "another program uses it, so correct the name",
};

/// The number is about twice the default limit of shards per stream.
const MAX_OBSERVATIONS: usize = 20_000;

pub(crate) fn why_lost(grant: &Grant, row: Option<&Row>) -> LossCause {
    let Some(row) = row else { return LossCause::Expired };
    let is_anothers = row.shows(grant) && !row.is_ours() || row.token() > Some(grant.token);
    if is_anothers {
        LossCause::Superseded
    } else if row.shows(grant) && (row.evicted() || !row.is_held_by(grant)) {
        LossCause::Revoked
    } else {
        LossCause::Expired
    }
}

fn reserved_holder(claim: &Claim, row: &Row, left: Duration) -> Holder {
    let lessee = row.owner.as_ref().or_else(|| row.former()).unwrap_or(&claim.lessee);
    Holder::new(lessee.clone(), Some(left)).with_token(row.token_or_zero())
}

fn missing_holder(claim: &Claim) -> Holder {
    Holder::new(claim.lessee.clone(), Some(Duration::ZERO)).with_token(no_token())
}

impl fmt::Debug for KclTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KclTable")
            .field("table", &self.shared.requests.name())
            .finish_non_exhaustive()
    }
}
