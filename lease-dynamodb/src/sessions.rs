//! Sessions: leases under a session, and the ends of sessions.

use std::time::Duration;

use async_trait::async_trait;
use lease_aws::table_client::{RawItem, ReturnItem, WriteOutcome, store_error};
use lease_core::store::{
    Claim, Ended, LeaseRecord, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{Holder, LeaseKey, StoreError, StoreErrorKind, Value};

use crate::items::{Column, Item, check_name};
use crate::lease_state::{LeaseState, last_holder};
use crate::store::{DynamoDbStore, changes_too_fast, missing_item};
use crate::write::{self, Purge};

#[async_trait]
impl Sessions for DynamoDbStore {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        let shared = &self.shared;
        if *vacancy.key() != claim.key {
            let text = format!("a vacancy of {} in a claim of {}", vacancy.key(), claim.key);
            return Err(store_error(StoreErrorKind::Refused, text));
        }
        let payload = self.claim_payload(claim)?;
        let (mut purge, mut has_ended_a_lease) = (Purge::AsMarked, false);
        loop {
            let (payload, now) = (payload.clone(), self.now());
            let write = write::obtain_under(claim, vacancy, payload, &shared.settings, now, purge);
            let refused = match self.write(&claim.key, write, ReturnItem::Always).await? {
                WriteOutcome::Applied(raw) => {
                    let item = self.item(&claim.key, raw)?;
                    return Ok(self.granted(claim.granted(item.token_or_zero), item).await);
                }
                WriteOutcome::Refused(refused) => self.refused_raw(&claim.key, refused).await?,
            };
            let item = refused.map(|raw| self.leasable_item(&claim.key, raw)).transpose()?;
            if shared.settings.existing_only && item.as_ref().is_none_or(|item| item.deleted) {
                return Err(missing_item(claim, shared.table.name()));
            }
            let Some(item) = item else {
                let former = Holder::new(claim.lessee.clone(), Some(Duration::ZERO));
                return Ok(Obtained::Held(former));
            };
            // The operator or another program made the item, so the TTL must not purge the item.
            let is_made_by_hand = item.token.is_none() && vacancy.token().is_none();
            if is_made_by_hand && purge == Purge::AsMarked {
                purge = Purge::Never;
                continue;
            }
            let answer = self.answer(claim, &item).await;
            if answer.is_none()
                && !has_ended_a_lease
                && let Some(lapsed) = lapsed_since(vacancy, &item)
            {
                has_ended_a_lease = true;
                self.end_session(&lapsed).await?;
                continue;
            }
            return match answer {
                Some(granted @ Obtained::Granted(..)) => Ok(granted),
                _ if !is_final(vacancy, &item) => Err(may_still_be_granted(claim)),
                Some(held) => Ok(held),
                None => Ok(Obtained::Held(last_holder(claim, &item, Some(Duration::ZERO)))),
            };
        }
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let (shared, key) = (&self.shared, &session.key);
        let (mut seen, mut last_attempt) = (None, false);
        loop {
            let stale = self.stale_item(key, None, seen.as_ref())?;
            let write = write::end_session(session, &shared.settings, self.now(), stale.as_ref());
            let item = match write {
                Some(write) => match self.write(key, write, ReturnItem::IfRefused).await? {
                    WriteOutcome::Applied(_) => return Ok(self.ended_now(session)),
                    WriteOutcome::Refused(refused) => self.refused_session(key, refused).await?,
                },
                // A read costs less than a write that DynamoDB must refuse.
                None => self.refused_session(key, None).await?,
            };
            let holder = match self.look_at(session, item.as_ref())? {
                Look::Ended => return Ok(SessionState::Ended(Ended::written(session.clone()))),
                Look::Held(holder) => return Ok(SessionState::Held(holder)),
                Look::Unmarked => {
                    let write =
                        write::end_mark(session, &shared.settings, self.now(), item.as_ref());
                    match self.write(key, write, ReturnItem::Never).await? {
                        WriteOutcome::Applied(_) => return Ok(self.ended_now(session)),
                        WriteOutcome::Refused(_) => None,
                    }
                }
                Look::Over(holder) => Some(holder),
            };
            if last_attempt {
                return holder.map(SessionState::Held).ok_or_else(|| changes_too_fast(key));
            }
            // The answer contained DynamoDB's time and the current item. So the next write may end
            // the session.
            (seen, last_attempt) = (item, true);
        }
    }

    /// Reads one key with strong consistency, and several keys in batches with eventual
    /// consistency. The record of a deleted item has no attributes, but a token that the next claim
    /// must name.
    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let table = &self.shared.table;
        let raw = match keys {
            // A claim follows such a read. A stale read would cost a refused write.
            [only] => vec![table.get(only.as_str()).await],
            _ => table.get_all(&keys.iter().map(LeaseKey::as_str).collect::<Vec<_>>()).await,
        };
        let record = |(key, raw): (&LeaseKey, Result<Option<RawItem>, StoreError>)| {
            raw?.map(|raw| self.record_for_claim(key, raw)).transpose()
        };
        keys.iter().zip(raw).map(record).collect()
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let settings = &self.shared.settings;
        check_name(name, &settings.columns)?;
        let write = write::count(name, settings);
        let counted = match self.write(key, write, ReturnItem::Always).await? {
            WriteOutcome::Applied(raw) => self.item(key, raw)?.attributes.get(name).cloned(),
            WriteOutcome::Refused(_) => None,
        };
        counted.as_ref().and_then(Value::as_i64).ok_or_else(|| {
            let text = format!("attribute {name:?} of item {:?} is no whole number", key.as_str());
            store_error(StoreErrorKind::Corrupt, text)
        })
    }
}

/// Whether `item` shows that no copy of a refused claim can be granted later.
///
/// The refusal is final if the token has grown, or if the key is under another session than the
/// former session of `vacancy`. In other cases, a late hand-over has taken the key out of its session,
/// or the read was stale.
fn is_final(vacancy: &Vacancy, item: &Item) -> bool {
    let is_under_another = item.parent.is_some() && item.parent.as_ref() != vacancy.former();
    item.token > vacancy.token() || is_under_another
}

/// Returns the lease that a late hand-over has made under the token of `vacancy`. `item` shows that this lease has
/// expired. The claim needs its end: no other process may want the key.
fn lapsed_since(vacancy: &Vacancy, item: &Item) -> Option<Parent> {
    let token = item.token.filter(|token| Some(*token) == vacancy.token())?;
    let has_lease = item.lessee.is_some() && item.parent.is_none();
    has_lease.then(|| Parent::new(vacancy.key().clone(), token))
}

fn may_still_be_granted(claim: &Claim) -> StoreError {
    let key = claim.key.as_str();
    let text = format!("item {key:?} changed under the same token: the claim may still be granted");
    store_error(StoreErrorKind::Unavailable, text)
}

enum Look {
    Ended,
    Held(Holder),
    /// The session is over, but the item does not show the end yet.
    Over(Holder),
    /// No item has the token of this session or of a later one.
    Unmarked,
}

impl DynamoDbStore {
    /// The item of a session. Another program may have written an invalid expiry. Then only the observation of the
    /// heartbeats shows the end: a live holder would repair the expiry.
    async fn refused_session(
        &self,
        key: &LeaseKey,
        refused: Option<RawItem>,
    ) -> Result<Option<Item>, StoreError> {
        let Some(mut raw) = self.refused_raw(key, refused).await? else { return Ok(None) };
        let expiry = self.shared.settings.columns.name(Column::ExpiresAt);
        let number = raw.get(expiry).and_then(|value| value.as_n().ok());
        if number.is_none_or(|number| number.parse::<u64>().is_err()) {
            raw.remove(expiry);
        }
        self.item(key, raw).map(Some)
    }

    fn record_for_claim(&self, key: &LeaseKey, raw: RawItem) -> Result<LeaseRecord, StoreError> {
        let item = self.item(key, raw)?;
        // A claim under a session never takes the key of another program, which writes no token.
        let foreign = item.lessee.clone().filter(|_| item.token.is_none());
        let mut record = self.to_record(key.clone(), item);
        if record.holder.is_none() {
            record.holder = foreign.map(|lessee| Holder::new(lessee, Some(Duration::ZERO)));
        }
        Ok(record)
    }

    fn look_at(&self, session: &Parent, item: Option<&Item>) -> Result<Look, StoreError> {
        let Some(item) = item else { return Ok(Look::Unmarked) };
        match item.token {
            Some(token) if token > session.token => return Ok(Look::Ended),
            Some(token) if token < session.token => return Err(self.unknown(session)),
            _ => (),
        }
        Ok(match self.state(&session.key, item, None) {
            LeaseState::Held(holder) => Look::Held(holder),
            LeaseState::Expired(holder) => Look::Over(holder),
            LeaseState::Free | LeaseState::Reserved(_) if item.token.is_none() => Look::Unmarked,
            LeaseState::Free | LeaseState::Reserved(_) => Look::Ended,
        })
    }

    fn ended_now(&self, session: &Parent) -> SessionState {
        self.shared.observations.forget(session.key.as_str());
        SessionState::Ended(Ended::written(session.clone()))
    }

    fn unknown(&self, session: &Parent) -> StoreError {
        let Parent { key, token, .. } = session;
        let table = self.shared.table.name();
        let text = format!("table {table} has never granted {key} under token {token}");
        store_error(StoreErrorKind::Refused, text)
    }
}
