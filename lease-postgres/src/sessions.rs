//! Sessions: leases under a session, which have no ttl, and the ends of sessions.
//!
//! The row of such a lease has the `ends` `infinity`, and names its session. So every statement treats the key
//! as held, and a statement that writes a finite `ends` takes the lease out of its session.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::{
    Claim, Ended, LeaseRecord, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{Holder, LeaseKey, StoreError};

use crate::attributes::escaped;
use crate::connection::database::Lane;
use crate::error::ServerFault;
use crate::reply::{Reply, column, record};
use crate::statements::{self, number};
use crate::store::{PostgresStore, READS_OF_A_CHANGING_ROW, claimed, obtained};

#[async_trait]
impl Sessions for PostgresStore {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        if *vacancy.key() != claim.key {
            let other = format!("a vacancy of {} in a claim of {}", vacancy.key(), claim.key);
            return Err(ServerFault::refused(other).into());
        }
        let (attributes, seen) = (claimed(claim)?, vacancy.token());
        for _ in 0..READS_OF_A_CHANGING_ROW {
            let call = self.claiming(statements::OBTAIN_UNDER, claim);
            let call = call.optional_text(attributes.clone());
            let call = call.optional_number(seen.map(|token| number(token.get())));
            let call = call.parent(vacancy.former()).parent(claim.parent.as_ref());
            let call = call.text(self.database.lock_timeout());
            let rows = self.database.run(Lane::Claims, call).await?;
            match rows.first() {
                Some(row) => {
                    if let Some(obtained) = obtained(claim, &Reply::read(row)?)? {
                        return Ok(obtained);
                    }
                }
                // The row with the token that the client has seen was deleted.
                None if seen.is_some() => {
                    return Ok(Obtained::Held(Holder::new(
                        claim.lessee.clone(),
                        Some(Duration::ZERO),
                    )));
                }
                // Another claim has inserted the row since the statement began.
                None => (),
            }
        }
        Err(self.changes_too_fast(&claim.key).into())
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        for _ in 0..READS_OF_A_CHANGING_ROW {
            let call = self.call(statements::END_SESSION).parent(Some(session));
            let call = call.text(self.channel()).text(self.database.lock_timeout());
            let rows = self.database.run(Lane::Claims, call).await?;
            let Some(row) = rows.first() else { continue };
            let reply = Reply::read(row)?;
            match reply.verdict.as_str() {
                "ended" => return Ok(SessionState::Ended(Ended::written(session.clone()))),
                "held" => return Ok(SessionState::Held(reply.holder(session.key.as_str())?)),
                _changed => (),
            }
        }
        Err(self.changes_too_fast(&session.key).into())
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE) {
            answers.extend(self.read_batch(keys).await);
        }
        answers
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let call = self.call(statements::COUNT).text(key.as_str()).text(escaped(name));
        let call = call.text(self.database.lock_timeout());
        let rows = self.database.run(Lane::Claims, call).await?;
        let Some(row) = rows.first() else {
            let text = format!("the attribute {name} of {key} is not a number that can be counted");
            return Err(ServerFault::corrupt(text).into());
        };
        Ok(column(row, "count")?)
    }
}

impl PostgresStore {
    /// If the statement fails, all reads fail.
    async fn read_batch(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        match self.read_rows(keys).await {
            Ok(records) => {
                let record = |key| records.get(key).cloned().transpose().map_err(StoreError::from);
                keys.iter().map(record).collect()
            }
            Err(fault) => keys.iter().map(|_key| Err(fault.clone().into())).collect(),
        }
    }

    async fn read_rows(
        &self,
        keys: &[LeaseKey],
    ) -> Result<HashMap<LeaseKey, Result<LeaseRecord, ServerFault>>, ServerFault> {
        let texts = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let call = self.call(statements::READ_ALL).texts(texts);
        let rows = self.database.run(Lane::Claims, call).await?;
        let mut records = HashMap::with_capacity(rows.len());
        for row in &rows {
            let key = crate::reply::key(row)?;
            if let Some(record) = record(key.clone(), row).transpose() {
                records.insert(key, record);
            }
        }
        Ok(records)
    }
}

/// As many rows as a page of a list has.
const READ_AT_ONCE: usize = 200;
