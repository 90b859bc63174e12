//! Sessions: leases under a session, which have no ttl, and the ends of sessions.
//!
//! The row of such a lease has the largest `ends`, and names its session. So every statement treats the key as
//! held, and a statement that writes another `ends` takes the lease out of its session.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::{
    Claim, Ended, LeaseRecord, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{Attributes, Holder, LeaseKey, StoreError, StoreErrorKind, Value};
use rusqlite::named_params;

use crate::attributes;
use crate::database::Database;
use crate::error::Fault;
use crate::requests::{Applied, ClaimRequest, Granted, micros, whole};
use crate::row::nonce_text;
use crate::store::{SqliteStore, claim_request, describe};
use crate::threads::queue::Urgency;

#[async_trait]
impl Sessions for SqliteStore {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        if *vacancy.key() != claim.key {
            let other = format!("a vacancy of {} in a claim of {}", vacancy.key(), claim.key);
            return Err(StoreError::new(StoreErrorKind::Refused, other));
        }
        let (request, vacancy) = (claim_request(claim)?, vacancy.clone());
        self.write(Urgency::Normal, move |database| database.obtain_under(&request, &vacancy)).await
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let session = session.clone();
        self.write(Urgency::Normal, move |database| database.end_session(&session)).await
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE) {
            let asked = keys.to_vec();
            let records = self.read_by(move |database| Ok(database.records(&asked))).await;
            match records {
                Ok(records) => answers.extend(records),
                Err(error) => {
                    let (kind, text) = (error.kind(), describe(&error));
                    answers
                        .extend(keys.iter().map(|_key| Err(StoreError::new(kind, text.clone()))));
                }
            }
        }
        answers
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let (key, name) = (key.clone(), name.to_owned());
        self.write(Urgency::Normal, move |database| database.count(&key, &name)).await
    }
}

impl Database {
    fn obtain_under(&self, request: &ClaimRequest, vacancy: &Vacancy) -> Result<Obtained, Fault> {
        let (claim, former) = (&request.claim, vacancy.former());
        let params = named_params! {
            ":key": claim.key.as_str(),
            ":nonce": nonce_text(claim.nonce),
            ":request": whole(claim.request.get()),
            ":lessee": claim.lessee.as_str(),
            ":ttl": micros(claim.ttl),
            ":attributes": request.attributes,
            ":seen": vacancy.token().map(|token| whole(token.get())),
            ":former": former.map(|session| session.key.as_str()),
            ":former_token": former.map(|session| whole(session.token.get())),
            ":parent": claim.parent.as_ref().map(|session| session.key.as_str()),
            ":parent_token": claim.parent.as_ref().map(|session| whole(session.token.get())),
        };
        Ok(match self.granted(claim, &self.settings.statements.obtain_under, params)? {
            Granted::Now(granted) => granted,
            Granted::Not(Some(row)) => Obtained::Held(row.refuser(claim)),
            // The row was removed, so the token has grown.
            Granted::Not(None) => {
                Obtained::Held(Holder::new(claim.lessee.clone(), Some(Duration::ZERO)))
            }
        })
    }

    fn end_session(&self, session: &Parent) -> Result<SessionState, Fault> {
        let params = named_params! {
            ":key": session.key.as_str(),
            ":token": whole(session.token.get()),
        };
        let ended = || Ok(SessionState::Ended(Ended::written(session.clone())));
        match self.write(&session.key, &self.settings.statements.end_session, params)? {
            Applied::Yes => {
                self.hand_on(&session.key)?;
                ended()
            }
            // Without a row, all later tokens are larger.
            Applied::No(None) => ended(),
            Applied::No(Some(row)) if row.token > Some(session.token) => ended(),
            Applied::No(Some(row)) => match row.holder() {
                Some(holder) => Ok(SessionState::Held(holder)),
                None => ended(),
            },
        }
    }

    fn records(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let read = |key| self.row(key)?.map(|row| row.to_known_record()).transpose();
        keys.iter().map(|key| read(key).map_err(StoreError::from)).collect()
    }

    fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, Fault> {
        let row = self.row(key)?;
        let attributes = row.map(|row| row.attributes()).transpose()?.unwrap_or_default();
        let before = match attributes.get(name) {
            None => Some(0),
            Some(value) => value.as_i64(),
        };
        let Some(count) = before.and_then(|before| before.checked_add(1)) else {
            return Err(Fault::corrupt(format!(
                "the attribute {name} of {key} is not a number that can be counted"
            )));
        };
        let counted = Attributes::from([(name.to_owned(), Value::from(count))]);
        let params = named_params! {
            ":key": key.as_str(),
            ":attributes": attributes::write(&counted),
        };
        self.execute(&self.settings.statements.count, params)?;
        Ok(count)
    }
}

/// During a read, other reads wait.
const READ_AT_ONCE: usize = 200;
