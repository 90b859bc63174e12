//! The store: each lock operation on a shard's row one conditional write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use lease_core::{
    Beat, Claim, FencingToken, Freed, Grant, Heartbeat, Holder, LeaseKey, LeaseTable, Lessee,
    LockStore, LossCause, Moment, Obtained, StoreError, StoreErrorKind, micros_since_1970,
};
use lease_dynamodb::parts::{
    Advice, Expression, Observations, Outcome, RawItem, Requests, Show, Table, Timing, corrupt,
    told,
};

use super::row::{COUNTER, LEASE_KEY, Row, no_token};
use super::sight::{Life, Sight};
use super::write;
use crate::names::Application;
use crate::position::InitialPosition;

/// A lease table of the Kinesis Client Library, for [workers](crate::Worker) of this crate to read
/// from beside workers of KCL, before them or after them.
///
/// Shards' rows are KCL's own. All other rows of an application (those of its workers) lie in
/// another table, since KCL takes every row of its own for a lease.
///
/// Every operation on a row is one conditional write, and what is taken is read first. See
/// [the crate's page](crate#kcl-tables) for what happens when something fails. Clones are the same
/// table.
#[derive(Clone)]
pub struct KclTable {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) requests: Requests,
    /// What the keys of shards' rows begin with, before KCL's own key.
    pub(super) shards: String,
    pub(super) ours: Arc<dyn LeaseTable>,
    pub(super) settings: Settings,
    observations: Observations<Sight>,
    /// Whose leases may be taken though they live: once each.
    to_steal: Mutex<BTreeMap<LeaseKey, Lessee>>,
}

/// What the builder sets.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) failover: Duration,
    pub(super) initial: InitialPosition,
    pub(super) timing: Timing,
    pub(super) consistent_listing: bool,
}

/// How a row stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nobody has it, and it is kept for nobody.
    Free,
    /// Nobody has it, and it is kept for so long: for its owner, or where there is none, for later.
    Reserved(Duration),
    /// A grant of ours, or a worker of KCL, has it.
    Held(Holder),
    /// The holder's time is over; the next claim takes it.
    Over(Holder),
}

impl KclTable {
    pub(super) fn with(
        client: Client,
        table: String,
        application: &Application,
        ours: Arc<dyn LeaseTable>,
        settings: Settings,
    ) -> Self {
        let table = Table { name: table, key: LEASE_KEY.to_owned(), advice: ADVICE };
        let requests = Requests::new(client, table, settings.timing.request_timeout);
        let shared = Shared {
            requests,
            shards: application.shards_prefix(),
            ours,
            settings,
            observations: Observations::new(MOST_SEEN),
            to_steal: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How long a lease of KCL must stand still until its worker is taken for gone.
    pub(crate) fn failover_time(&self) -> Duration {
        self.shared.settings.failover
    }

    /// Lets the next claim of `key` take it from `owner`, a worker of KCL, though that one lives: as
    /// workers of KCL 1 and 2 do among themselves.
    pub(crate) fn steal(&self, key: &LeaseKey, owner: &Lessee) {
        self.to_steal().insert(key.clone(), owner.clone());
    }

    /// KCL's key of the row; `None` where it is none of a shard, and ours.
    ///
    /// # Errors
    ///
    /// Where it is a shard's of another application: it would be looked for in the wrong place.
    pub(super) fn lease_key<'a>(&self, key: &'a LeaseKey) -> Result<Option<&'a str>, StoreError> {
        if let Some(lease_key) = key.as_str().strip_prefix(&self.shared.shards) {
            return Ok(Some(lease_key));
        }
        let mut parts = key.as_str().splitn(3, '/');
        if let (Some(_), Some("shards"), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            let (table, shards) = (self.shared.requests.table(), &self.shared.shards);
            let text = format!("{key} is no key of table {table}, where they begin with {shards}");
            return Err(told(StoreErrorKind::Misconfigured, text));
        }
        Ok(None)
    }

    pub(super) async fn write(
        &self,
        lease_key: &str,
        write: Expression,
        show: Show,
    ) -> Result<Outcome, StoreError> {
        self.shared.requests.update(lease_key, write.written(write::column), show).await
    }

    pub(super) async fn row(&self, lease_key: &str) -> Result<Option<Row>, StoreError> {
        match self.shared.requests.get(lease_key).await? {
            Some(raw) => self.read(lease_key, raw),
            None => Ok(None),
        }
    }

    pub(super) fn read(&self, lease_key: &str, raw: RawItem) -> Result<Option<Row>, StoreError> {
        Row::read(lease_key, raw, self.shared.settings.initial)
    }

    /// The row as a refused write showed it; read where the answer did not show it, since some
    /// servers other than AWS never do.
    pub(super) async fn shown(
        &self,
        lease_key: &str,
        refused: Option<RawItem>,
    ) -> Result<Option<Row>, StoreError> {
        match refused {
            Some(raw) => self.read(lease_key, raw),
            None => self.row(lease_key).await,
        }
    }

    /// How `row`, which was received just now, stands.
    pub(super) fn standing(&self, lease_key: &str, row: &Row) -> Standing {
        let shared = &self.shared;
        let token = row.token_or_zero();
        let left = |ttl: Duration| {
            let since = shared.observations.see(lease_key, row.sight(), Some(ttl), self.now());
            self.surely(ttl).saturating_sub(self.now().since(since))
        };
        if let Some(reserved) = row.reserved() {
            let left = left(reserved);
            return if left.is_zero() { Standing::Free } else { Standing::Reserved(left) };
        }
        // While KCL 3 hands it over, its processor moves the counter. Where that stands still, the
        // processor has died before it was done, and KCL 3, too, then assigns the lease anew.
        let Some(owner) = row.processor.as_ref().or(row.owner.as_ref()) else {
            shared.observations.forget(lease_key);
            return Standing::Free;
        };
        let left = left(row.ttl().unwrap_or(shared.settings.failover));
        let holder = Holder::new(owner.clone(), token, Some(left));
        if left.is_zero() { Standing::Over(holder) } else { Standing::Held(holder) }
    }

    pub(super) fn holder_of(&self, lease_key: &str, row: &Row) -> Option<Holder> {
        match self.standing(lease_key, row) {
            Standing::Held(holder) => Some(holder),
            Standing::Free | Standing::Reserved(_) | Standing::Over(_) => None,
        }
    }

    /// Whether a claim may take `row` now; otherwise who has it, or for whom it is kept.
    fn refusal(&self, claim: &Claim, lease_key: &str, row: &Row) -> Option<Holder> {
        let standing = self.standing(lease_key, row);
        // It was granted before, and given back or taken since: a duplicate that nobody waits for.
        if row.carries(claim.nonce) {
            return Some(match standing {
                Standing::Held(holder) | Standing::Over(holder) => holder,
                Standing::Reserved(left) => kept(claim, row, left),
                Standing::Free => kept(claim, row, Duration::ZERO),
            });
        }
        match standing {
            Standing::Free | Standing::Over(_) => None,
            Standing::Reserved(_) if row.owner.as_ref() == Some(&claim.lessee) => None,
            Standing::Reserved(left) => Some(kept(claim, row, left)),
            Standing::Held(_) if row.processor.is_none() && self.steals(claim, row) => None,
            Standing::Held(holder) => Some(holder),
        }
    }

    /// Whether a lease that KCL has written may be stolen. One that has the claim's own name on it may
    /// not: KCL 3's leader assigns so, and so does a worker of KCL renew that is called as we are.
    fn steals(&self, claim: &Claim, row: &Row) -> bool {
        !row.is_ours() && self.to_steal().get(&claim.key) == row.owner.as_ref()
    }

    /// What the owner of a grant knows of it: that it has run out, though nobody took it.
    ///
    /// Whatever was applied of its heartbeats, it has had no answer, so its own count has ended
    /// before. Nothing is revived by a request that comes so late.
    pub(super) fn has_run_out(&self, lease_key: &str, grant: &Grant) -> bool {
        let Some(watched) = self.shared.observations.recall(lease_key) else { return false };
        let nonce = grant.nonce.to_string();
        let is_its_own = matches!(
            &watched.sight.life,
            Life::OfGrant { nonce: of, token, reserved: false, .. }
                if *of == nonce && *token == grant.token
        );
        is_its_own
            && self.now().since(watched.since) >= self.surely(watched.ttl.unwrap_or(grant.ttl))
    }

    /// Remembers a sign of life of `grant`'s own.
    fn saw(&self, lease_key: &str, grant: &Grant, beat: Beat) {
        let nonce = grant.nonce.to_string();
        let life = Life::OfGrant { nonce, token: grant.token, beat: beat.get(), reserved: false };
        let sight = Sight { owner: Some(grant.lessee.clone()), life };
        self.shared.observations.see(lease_key, sight, Some(grant.ttl), self.now());
    }

    /// So long that a clock as fast as any has passed `ttl` by one as slow as any.
    fn surely(&self, ttl: Duration) -> Duration {
        ttl.mul_f64(1.0 + self.shared.settings.timing.clock_rate_error)
    }

    fn now(&self) -> Moment {
        self.shared.settings.timing.clock.now()
    }

    fn to_steal(&self) -> MutexGuard<'_, BTreeMap<LeaseKey, Lessee>> {
        self.shared.to_steal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self, claim: &Claim, lease_key: &str) -> Result<Obtained, StoreError> {
        let mut shown = self.row(lease_key).await?;
        let mut tries = 0;
        loop {
            // Rows are made by who knows of the shard: KCL would not understand an empty one.
            let Some(row) = shown else { return Ok(Obtained::Held(nobody(claim))) };
            // Granted before, and the answer lost.
            if row.is_held_by(&claim.granted(row.token_or_zero()))
                && let Standing::Held(_) = self.standing(lease_key, &row)
            {
                let grant = claim.granted(row.token_or_zero());
                return Ok(Obtained::Granted(grant, row.attributes));
            }
            if let Some(holder) = self.refusal(claim, lease_key, &row) {
                return Ok(Obtained::Held(holder));
            }
            if tries == 2 {
                return Ok(Obtained::Held(kept(claim, &row, Duration::ZERO)));
            }
            tries += 1;
            // Where the row had none yet, from the time: so it is larger than those of a row that
            // was deleted before.
            let next = row.token().map_or_else(micros_since_1970, |last| last.get() + 1);
            let token = FencingToken::new(next)
                .map_err(|refused| corrupt(lease_key, "grantToken", refused))?;
            let write = write::obtain(claim, token, &row);
            match self.write(lease_key, write, Show::Item).await? {
                Outcome::Applied(raw) => {
                    let grant = claim.granted(token);
                    self.saw(lease_key, &grant, Beat::GRANTED);
                    let row = self.read(lease_key, raw)?;
                    let attributes = row.map(|row| row.attributes).unwrap_or_default();
                    return Ok(Obtained::Granted(grant, attributes));
                }
                Outcome::Refused(raw) => shown = self.shown(lease_key, raw).await?,
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
        // What has come about or not is for the next look to decide upon.
        self.to_steal().remove(&claim.key);
        obtained
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.heartbeat(grant, beat).await;
        };
        if self.has_run_out(lease_key, grant) {
            return Ok(Heartbeat::Lost(LossCause::Expired));
        }
        let write = write::heartbeat(grant, beat);
        let refused = match self.write(lease_key, write, Show::RefusedItem).await? {
            Outcome::Applied(_) => {
                self.saw(lease_key, grant, beat);
                return Ok(Heartbeat::Extended);
            }
            Outcome::Refused(raw) => raw,
        };
        let Some(row) = self.shown(lease_key, refused).await? else {
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
        // Refused: it was released before, or is somebody else's. Either way nothing changed.
        self.write(lease_key, write::release(grant, reserved), Show::Nothing).await?;
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.adopt(grant, claim).await;
        };
        let gone = Holder::new(grant.lessee.clone(), grant.token, Some(Duration::ZERO));
        if self.has_run_out(lease_key, grant) {
            return Ok(Obtained::Held(gone));
        }
        let write = write::adopt(grant, claim);
        let shown = match self.write(lease_key, write, Show::Item).await? {
            Outcome::Applied(raw) => {
                let row = self.read(lease_key, raw)?;
                let row = row.ok_or_else(|| corrupt(lease_key, COUNTER, "absent"))?;
                let grant = claim.granted(row.token_or_zero());
                self.saw(lease_key, &grant, Beat::GRANTED);
                return Ok(Obtained::Granted(grant, row.attributes));
            }
            Outcome::Refused(raw) => self.shown(lease_key, raw).await?,
        };
        let Some(row) = shown else { return Ok(Obtained::Held(gone)) };
        let adopted = claim.granted(row.token_or_zero());
        match self.holder_of(lease_key, &row) {
            // Adopted before, and the answer lost.
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

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        match self.lease_key(key)? {
            Some(_) => Ok(Freed::never()),
            None => self.shared.ours.watch(key).await,
        }
    }

    /// Ttls are kept in whole milliseconds.
    fn grain(&self) -> Duration {
        self.shared.ours.grain().max(Duration::from_millis(1))
    }
}

/// In words that hold for who names the table in code, and for who does in a daemon's properties.
const ADVICE: Advice = Advice {
    missing: "make it, or correct its name",
    other_key: "it is another program's, so correct the name",
};

/// Of how many rows it is remembered what was seen: about twice the shards that a stream may have by
/// default.
const MOST_SEEN: usize = 20_000;

/// How `grant` was lost, as far as the row tells.
pub(super) fn why_lost(grant: &Grant, row: Option<&Row>) -> LossCause {
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

/// Who keeps a row that nobody has: for whom it is kept, or who had it last.
fn kept(claim: &Claim, row: &Row, left: Duration) -> Holder {
    let lessee = row.owner.as_ref().or_else(|| row.former()).unwrap_or(&claim.lessee);
    Holder::new(lessee.clone(), row.token_or_zero(), Some(left))
}

/// Who has what is not there.
fn nobody(claim: &Claim) -> Holder {
    Holder::new(claim.lessee.clone(), no_token(), Some(Duration::ZERO))
}

impl fmt::Debug for KclTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KclTable")
            .field("table", &self.shared.requests.table())
            .finish_non_exhaustive()
    }
}
