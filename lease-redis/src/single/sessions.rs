//! Sessions on one logical server: children without a ttl, and the end marks of sessions.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use lease_core::store::{
    Claim, Ended, LeaseRecord, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};

use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::scripts::{self, BATCH, BATCHES_AT_ONCE, Call, millis, nonce_text, text};
use crate::single::RedisStore;
use crate::single::obtain::{ClaimKind, ClaimRequest};
use crate::single::requests::ClaimReply;
use crate::single::store::obtained;
use crate::single::table::{Listed, RecordFields};

#[async_trait]
impl Sessions for RedisStore {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        if *vacancy.key() != claim.key {
            let other = format!("a vacancy of {} in a claim of {}", vacancy.key(), claim.key);
            return Err(StoreError::new(StoreErrorKind::Refused, other));
        }
        let reply = self.claim(&ClaimRequest::new(claim, ClaimKind::Seen(vacancy))?).await?;
        obtained(claim, reply).ok_or_else(|| self.node.unreadable("obtain_under").into())
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let call = self.node.end_session_call(session);
        let answer = self.node.call(&call).await?;
        if text(&answer).as_deref() == Some("ended") {
            return Ok(SessionState::Ended(Ended::written(session.clone())));
        }
        match self.node.read_claim(call.name(), &answer)? {
            ClaimReply::Held(holder) => Ok(SessionState::Held(holder)),
            _ => Err(self.node.unreadable(call.name()).into()),
        }
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let batch = if self.node.has_locks() { BATCH } else { 1 };
        let batches: Vec<_> = keys.chunks(batch).map(|keys| self.read_batch(keys)).collect();
        stream::iter(batches).buffered(BATCHES_AT_ONCE).flat_map(stream::iter).collect().await
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let mut answer = self.counted(key, name, Listed::NotYet).await?;
        if answer == "unlisted" {
            // Adds the name twice, as in `create`.
            self.put_on_list(key).await?;
            answer = self.counted(key, name, Listed::Already).await?;
            self.put_on_list(key).await?;
        }
        if answer == "held" {
            let text = format!("{key} is held without a record: count on a key that is not leased");
            return Err(StoreError::new(StoreErrorKind::Refused, text));
        }
        answer.parse().map_err(|_not_a_number| {
            let text = format!("the attribute {name} of {key} is not a number that can be counted");
            StoreError::new(StoreErrorKind::Corrupt, text)
        })
    }
}

impl RedisStore {
    /// If the script fails, all reads fail.
    async fn read_batch(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        match self.node.records(keys).await {
            Ok(records) => {
                let records = keys.iter().zip(records);
                records.map(|(key, read)| Ok(known(key, read?))).collect()
            }
            Err(fault) => keys.iter().map(|_| Err(fault.clone().into())).collect(),
        }
    }

    async fn counted(
        &self,
        key: &LeaseKey,
        name: &str,
        listed: Listed,
    ) -> Result<String, ServerFault> {
        let (node, keys) = (&self.node, &self.node.keys);
        let mut names = vec![keys.lease(key).to_string(), keys.attributes(key).to_string()];
        if node.has_locks() {
            names.push(keys.index());
        }
        let call = scripts::COUNT
            .on(names)
            .arg(name)
            .number(u64::from(listed == Listed::Already))
            .arg(key.as_str());
        text(&node.call(&call).await?).ok_or_else(|| node.unreadable(call.name()))
    }
}

impl Node {
    pub(crate) fn obtain_under_call(
        &self,
        keys: Vec<String>,
        claim: &Claim,
        vacancy: &Vacancy,
    ) -> Call {
        let call = scripts::OBTAIN_UNDER
            .on(keys)
            .arg(nonce_text(claim.nonce))
            .number(claim.request.get())
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .number(millis(self.retention))
            .number(u64::from(self.is_awaited(&claim.key)));
        let call = match vacancy.token() {
            Some(seen) => call.number(seen.get()),
            None => call.arg(""),
        };
        call.session(vacancy.former()).session(claim.parent.as_ref())
    }

    fn end_session_call(&self, session: &Parent) -> Call {
        let mut names = vec![self.keys.lease(&session.key).to_string()];
        if self.has_locks() {
            names.push(self.keys.tokens());
        }
        scripts::END_SESSION
            .on(names)
            .number(session.token.get())
            .number(millis(self.retention))
            .arg(self.publish())
            .arg(self.keys.channel(&session.key))
    }
}

/// A key has a record even if only its token or its reservation remains.
fn known(key: &LeaseKey, read: RecordFields) -> Option<LeaseRecord> {
    let is_known = read.holder.is_some()
        || read.token.is_some()
        || read.attributes.is_some()
        || read.reserved.is_some();
    is_known.then(|| read.into_record(key))
}
