//! The store: each lock operation one conditional write.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use lease_core::{
    Beat, Claim, Grant, Heartbeat, Holder, LeaseKey, LockStore, LossCause, Moment, Obtained,
    StoreError, StoreErrorKind,
};
use tracing::debug;

use crate::column::Column;
use crate::config::{DynamoDbStoreBuilder, Settings};
use crate::dated::Dated;
use crate::foreign::{lock_client_columns, of_lock_client};
use crate::item::{Item, Sight};
use crate::parts::{
    Advice, Expression, Observations, Outcome, RawItem, Requests, Show, Table, told,
};
use crate::standing::Standing;
use crate::time::{Now, ServerTime};
use crate::write::{self, Gone, Purge};

/// Keeps leases in a DynamoDB table. Clones share what they have learned of DynamoDB's time.
///
/// Each operation is one conditional write to one item. See the [crate's](crate) page for the
/// table's layout, what it costs, and what happens when something fails.
#[derive(Clone)]
pub struct DynamoDbStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) requests: Requests,
    pub(crate) settings: Settings,
    pub(crate) time: Arc<ServerTime>,
    pub(crate) observations: Observations<Sight>,
}

impl DynamoDbStore {
    /// Leases in `table`, with every default.
    ///
    /// Sends nothing: the table is asked for with the first operation, or by
    /// [`ensure_table`](Self::ensure_table). The client's connections, credentials and retries
    /// are used as they are.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        DynamoDbStoreBuilder::new(client, table.into()).build_unchecked()
    }

    /// Sets up a store: column names, time, limits.
    pub fn builder(client: Client, table: impl Into<String>) -> DynamoDbStoreBuilder {
        DynamoDbStoreBuilder::new(client, table.into())
    }

    pub(crate) fn with(client: &Client, settings: Settings) -> Self {
        let timing = &settings.timing;
        let time = Arc::new(ServerTime::new(Arc::clone(&timing.clock), timing.clock_rate_error));
        // The user's own client, connections included, and besides an ear for dates.
        let dated = Dated(Arc::clone(&time));
        let client = Client::from_conf(client.config().to_builder().interceptor(dated).build());
        let table = Table {
            name: settings.table.clone(),
            key: settings.columns.name(Column::Key).to_owned(),
            advice: ADVICE,
        };
        let requests = Requests::new(client, table, timing.request_timeout);
        let observations = Observations::new(settings.observations);
        Self { shared: Arc::new(Shared { requests, settings, time, observations }) }
    }

    pub(crate) async fn write(
        &self,
        key: &LeaseKey,
        write: Expression,
        show: Show,
    ) -> Result<Outcome, StoreError> {
        let write = write.written(|placeholder| self.shared.settings.columns.behind(placeholder));
        self.shared.requests.update(key.as_str(), write, show).await
    }

    pub(crate) fn now(&self) -> Option<Now> {
        self.shared.time.now()
    }

    /// The item as a refused write showed it; read where the answer did not show it, since
    /// some servers other than AWS never do.
    pub(crate) async fn shown(
        &self,
        key: &LeaseKey,
        refused: Option<RawItem>,
    ) -> Result<Option<Item>, StoreError> {
        let raw = self.raw(key, refused).await?;
        raw.map(|raw| self.item(key, raw)).transpose()
    }

    async fn raw(
        &self,
        key: &LeaseKey,
        refused: Option<RawItem>,
    ) -> Result<Option<RawItem>, StoreError> {
        match refused {
            Some(raw) => Ok(Some(raw)),
            None => self.shared.requests.get(key.as_str()).await,
        }
    }

    pub(crate) fn item(&self, key: &LeaseKey, raw: RawItem) -> Result<Item, StoreError> {
        Item::read(key.as_str(), raw, &self.shared.settings.columns)
    }

    /// How `item`, which was received just now, stands.
    fn standing(&self, key: &LeaseKey, item: &Item, else_ttl: Option<Duration>) -> Standing {
        let shared = &self.shared;
        Standing::of(
            key,
            item,
            else_ttl,
            &shared.settings,
            &shared.time,
            &shared.observations,
            self.moment(),
        )
    }

    pub(crate) fn holder_of(&self, key: &LeaseKey, item: &Item) -> Option<Holder> {
        match self.standing(key, item, None) {
            Standing::Held(holder) => Some(holder),
            Standing::Free | Standing::Reserved(_) | Standing::Over(_) => None,
        }
    }

    /// What was seen of the key, where that has lasted for the holder's whole ttl. `item` was
    /// received just now, if at all; without it, what another program wrote is not known well
    /// enough.
    fn gone(&self, claim: &Claim, item: Option<&Item>) -> Option<Gone> {
        let watched = self.shared.observations.recall(claim.key.as_str())?;
        let foreign = match item {
            Some(item) if item.sight() == watched.sight => item.foreign.clone(),
            _ if watched.sight.foreign.is_none() => None,
            _ => return None,
        };
        let patience = self.shared.time.surely(watched.ttl.unwrap_or(claim.ttl));
        let over = self.moment().since(watched.since) >= patience;
        over.then_some(Gone { sight: watched.sight, foreign })
    }

    /// Reads the item before it is written, where it was lately seen held or reserved: a read costs
    /// a fifth of a write that is refused. What another program may have written is always read.
    async fn look(&self, claim: &Claim) -> Result<Option<Item>, StoreError> {
        let Some(watched) = self.shared.observations.recall(claim.key.as_str()) else {
            return Ok(None);
        };
        let lately = self.moment().since(watched.last) < watched.ttl.unwrap_or(claim.ttl);
        if !lately && watched.sight.foreign.is_none() {
            return Ok(None);
        }
        let raw = self.shared.requests.get(claim.key.as_str()).await?;
        raw.map(|raw| self.item_to_lease(&claim.key, raw)).transpose()
    }

    /// The item, unless Amazon's lock client has written it and that is not allowed for.
    fn item_to_lease(&self, key: &LeaseKey, raw: RawItem) -> Result<Item, StoreError> {
        let shared = &self.shared;
        let theirs = lock_client_columns(&shared.settings.columns)
            .find(|name| !shared.settings.lock_client_items && raw.contains_key(*name));
        match theirs {
            Some(column) => Err(of_lock_client(key, shared.requests.table(), column)),
            None => self.item(key, raw),
        }
    }

    fn moment(&self) -> Moment {
        self.shared.time.clock().now()
    }

    /// Answers a grant that `item` shows; sets what its write could not know.
    async fn granted(&self, claim: &Claim, item: Item) -> Obtained {
        let shared = &self.shared;
        shared.observations.forget(claim.key.as_str());
        let grant = claim.granted(item.token_or_zero);
        let now = self.now();
        let undated = item.expires_at.is_none() && now.is_some();
        let unmarked =
            shared.settings.retention.is_some() && !item.lasting && !item.attributes.is_empty();
        if undated || unmarked {
            let purge = if unmarked { Purge::Never } else { Purge::AsMarked };
            let amended = self
                .write(
                    &claim.key,
                    write::amend(&grant, &shared.settings, now, purge),
                    Show::Nothing,
                )
                .await;
            // The grant stands without it: the first heartbeat tells the time as well.
            if let Err(error) = amended {
                debug!(
                    key = %claim.key, error = &error as &dyn std::error::Error,
                    "a grant could not be amended"
                );
            }
        }
        Obtained::Granted(grant, item.attributes)
    }

    /// What `item` says to a claim; `None` where the claim may have the key.
    async fn answer(&self, claim: &Claim, item: &Item) -> Option<Obtained> {
        let holder = self.refusal(claim, item)?;
        let own = item.carries(claim.nonce) && item.lessee.as_ref() == Some(&claim.lessee);
        if own && holder.expires_in != Some(Duration::ZERO) {
            // Granted before, and the answer lost.
            return Some(self.granted(claim, item.clone()).await);
        }
        Some(Obtained::Held(holder))
    }

    /// Says who has the key, where `item` refuses a claim; `None` where the claim may have it.
    fn refusal(&self, claim: &Claim, item: &Item) -> Option<Holder> {
        match self.standing(&claim.key, item, Some(claim.ttl)) {
            Standing::Held(holder) => Some(holder),
            // The claim's own grant has run out: a duplicate that nobody waits for.
            Standing::Over(holder) => item.carries(claim.nonce).then_some(holder),
            Standing::Free => {
                item.carries(claim.nonce).then(|| kept(claim, item, Some(Duration::ZERO)))
            }
            Standing::Reserved(_) if item.offered_to.as_ref() == Some(&claim.lessee) => None,
            Standing::Reserved(left) => Some(kept(claim, item, left)),
        }
    }
}

#[async_trait]
impl LockStore for DynamoDbStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let shared = &self.shared;
        let mut seen = self.look(claim).await?;
        let mut last_try = false;
        loop {
            if let Some(item) = &seen
                && let Some(answer) = self.answer(claim, item).await
            {
                return Ok(answer);
            }
            let purge = match &seen {
                // Not one of ours: it is the operator's, and lasts.
                Some(item) if item.token.is_none() => Purge::Never,
                _ => Purge::AsMarked,
            };
            let gone = self.gone(claim, seen.as_ref());
            let write = write::obtain(claim, &shared.settings, self.now(), gone.as_ref(), purge);
            let refused = match self.write(&claim.key, write, Show::Item).await? {
                Outcome::Applied(raw) => {
                    let item = self.item(&claim.key, raw)?;
                    return Ok(self.granted(claim, item).await);
                }
                Outcome::Refused(shown) => self.raw(&claim.key, shown).await?,
            };

            seen = refused.map(|raw| self.item_to_lease(&claim.key, raw)).transpose()?;
            if shared.settings.existing_only && seen.as_ref().is_none_or(|item| item.deleted) {
                return Err(told(
                    StoreErrorKind::Misconfigured,
                    format!(
                        "there is no item {:?} in table {}, and this store leases existing ones \
                         only: create it, or correct the key",
                        claim.key.as_str(),
                        shared.requests.table()
                    ),
                ));
            }
            if last_try {
                let Some(item) = seen else {
                    return Err(changes_too_fast(claim));
                };
                let answer = self.answer(claim, &item).await;
                let left = Some(Duration::ZERO);
                return Ok(answer.unwrap_or_else(|| Obtained::Held(kept(claim, &item, left))));
            }
            // This answer has told the time, shown an item that is not one of ours, or shown none,
            // since it was removed meanwhile: with that known, the key may be free.
            last_try = true;
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let shared = &self.shared;
        let outcome = self
            .write(
                &grant.key,
                write::heartbeat(grant, beat, &shared.settings, self.now()),
                Show::RefusedItem,
            )
            .await?;
        let Outcome::Refused(shown) = outcome else {
            return Ok(Heartbeat::Extended);
        };
        let Some(item) = self.shown(&grant.key, shown).await? else {
            return Ok(Heartbeat::Lost(LossCause::Expired));
        };
        let overtaken = item.beat.is_some_and(|last| last >= beat);
        Ok(if self.stands(grant, &item) && overtaken && !item.evicted {
            Heartbeat::Overtaken
        } else {
            Heartbeat::Lost(why_lost(grant, Some(&item)))
        })
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let shared = &self.shared;
        // Refused: it was released before, or is somebody else's. Either way nothing changed.
        self.write(
            &grant.key,
            write::release(grant, &shared.settings, self.now(), reserved),
            Show::Nothing,
        )
        .await?;
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let shared = &self.shared;
        let outcome = self
            .write(&grant.key, write::adopt(grant, claim, &shared.settings, self.now()), Show::Item)
            .await?;
        let shown = match outcome {
            Outcome::Applied(raw) => {
                let item = self.item(&claim.key, raw)?;
                return Ok(self.granted(claim, item).await);
            }
            Outcome::Refused(shown) => shown,
        };
        let gone = Holder::new(grant.lessee.clone(), grant.token, Some(Duration::ZERO));
        let Some(item) = self.shown(&claim.key, shown).await? else {
            return Ok(Obtained::Held(gone));
        };
        match self.holder_of(&claim.key, &item) {
            // Adopted before, and the answer lost.
            Some(_) if item.carries(claim.nonce) => Ok(self.granted(claim, item).await),
            Some(holder) => Ok(Obtained::Held(holder)),
            None => Ok(Obtained::Held(gone)),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let Some(raw) = self.shared.requests.get(key.as_str()).await? else {
            return Ok(None);
        };
        let item = self.item(key, raw)?;
        Ok(self.holder_of(key, &item))
    }

    /// Expiries are kept in whole milliseconds.
    fn grain(&self) -> Duration {
        Duration::from_millis(1)
    }
}

impl DynamoDbStore {
    /// Whether `item` shows that `grant` still has the key.
    pub(crate) fn stands(&self, grant: &Grant, item: &Item) -> bool {
        item.shows(grant) && item.lessee.as_ref() == Some(&grant.lessee) && !self.over(item)
    }

    /// Whether the time of `item`'s holder is surely over by DynamoDB's time.
    fn over(&self, item: &Item) -> bool {
        match (item.expires_at, self.now()) {
            (Some(expires_at), Some(now)) => {
                expires_at.plus(self.shared.settings.margin) <= now.lowest
            }
            _ => false,
        }
    }
}

/// How `grant` was lost, as far as the item tells.
pub(crate) fn why_lost(grant: &Grant, item: Option<&Item>) -> LossCause {
    let Some(item) = item else {
        return LossCause::Expired;
    };
    if item.shows(grant) {
        if item.evicted || item.lessee.as_ref() != Some(&grant.lessee) {
            LossCause::Revoked
        } else {
            LossCause::Expired
        }
    } else if item.token > Some(grant.token) {
        LossCause::Superseded
    } else {
        LossCause::Expired
    }
}

/// Who keeps a key that nobody holds: for whom it is kept, or who had it last.
fn kept(claim: &Claim, item: &Item, left: Option<Duration>) -> Holder {
    let lessee = item
        .lessee
        .as_ref()
        .or(item.offered_to.as_ref())
        .or(item.former.as_ref())
        .unwrap_or(&claim.lessee);
    Holder::new(lessee.clone(), item.token_or_zero, left)
}

fn changes_too_fast(claim: &Claim) -> StoreError {
    told(
        StoreErrorKind::Unavailable,
        format!("item {:?} is removed as fast as it is made", claim.key.as_str()),
    )
}

const ADVICE: Advice = Advice {
    missing: "make it with `DynamoDbStore::ensure_table()`",
    other_key: "name the key column with `with_column(Column::Key, …)`, or use another table",
};

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore")
            .field("table", &self.shared.requests.table())
            .finish_non_exhaustive()
    }
}
