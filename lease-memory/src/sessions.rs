//! Sessions: leases under a session, which have no ttl, and the ends of sessions.

use async_trait::async_trait;
use lease_core::store::{
    Claim, Ended, LeaseRecord, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{LeaseKey, StoreError, StoreErrorKind, Value};

use crate::record::{Decision, Lifetime, Record};
use crate::store::MemoryStore;

#[async_trait]
impl Sessions for MemoryStore {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        if *vacancy.key() != claim.key {
            let other = format!("a vacancy of {} in a claim of {}", vacancy.key(), claim.key);
            return Err(StoreError::new(StoreErrorKind::Refused, other));
        }
        let (mut records, now) = self.lock();
        // The last holder's lease may have expired. Then the first claim in the queue gets the key.
        self.shared.settle(&mut records, &claim.key, now)?;
        let record = records.get_or_create(&claim.key, now);
        match record.decide(claim, now) {
            Decision::AlreadyGranted(request, token) => {
                let grant = claim.granted_to(Some(request), token);
                Ok(Obtained::Granted(grant, record.attributes.clone()))
            }
            _ if record.token != vacancy.token() => {
                Ok(Obtained::Held(record.last_holder(claim, now)))
            }
            Decision::Free if vacancy.former().is_none() => records.grant(claim, now),
            Decision::Held(_) if record.is_child_of(vacancy.former()) => records.grant(claim, now),
            // A late hand-over or release has taken the key out of the session that the client has seen. The
            // token is the same. So the claim is refused now and later, and its client reads the record again.
            Decision::Free => Ok(Obtained::Held(record.last_holder(claim, now))),
            Decision::Held(holder) => Ok(Obtained::Held(holder)),
        }
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let (mut records, now) = self.lock();
        let floor = records.floor();
        // A record without a token was created after the session's record was removed.
        let record = records.get_mut(&session.key).filter(|record| record.token.is_some());
        let Some(record) = record else {
            return match session.token.get() {
                // The record was removed, so the session has ended. All later tokens are larger.
                token if token <= floor => Ok(SessionState::Ended(Ended::written(session.clone()))),
                _ => Err(unknown(session)),
            };
        };
        if record.token < Some(session.token) {
            return Err(unknown(session));
        }
        if record.token == Some(session.token) {
            if let Some(holder) = record.holder(now) {
                return Ok(SessionState::Held(holder));
            }
            if record.end_expired(now) {
                self.freed(records, &session.key, now)?;
            }
        }
        Ok(SessionState::Ended(Ended::written(session.clone())))
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let (records, now) = self.lock();
        let read =
            |key| records.get(key).and_then(|record: &Record| record.to_lease_record(key, now));
        keys.iter().map(|key| Ok(read(key))).collect()
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let (mut records, now) = self.lock();
        let record = records.get_or_create(key, now);
        let before = match record.attributes.get(name) {
            None => Some(0),
            Some(value) => value.as_i64(),
        };
        let Some(count) = before.and_then(|before| before.checked_add(1)) else {
            let text = format!("the attribute {name} of {key} is not a number that can be counted");
            return Err(StoreError::new(StoreErrorKind::Corrupt, text));
        };
        record.attributes.insert(name.to_owned(), Value::from(count));
        record.lifetime = Lifetime::Lasting;
        Ok(count)
    }
}

fn unknown(session: &Parent) -> StoreError {
    let text =
        format!("this store has never granted {} under token {}", session.key, session.token);
    StoreError::new(StoreErrorKind::Refused, text)
}
