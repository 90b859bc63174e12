//! The requests of both traits. Each write runs within a transaction that has locked the file.
//!
//! If a statement writes nothing, the row explains the reason. The row cannot change before it is read,
//! because the transaction holds the write lock.

use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat, Obtained};
use lease_core::{FencingToken, GrantId, LeaseKey, Lessee, LossCause, StoreErrorKind, Written};
use rusqlite::{Row as SqlRow, named_params};

use crate::attributes;
use crate::database::{Database, Params};
use crate::error::Fault;
use crate::row::{Row, nonce_text};

#[derive(Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) claim: Claim,
    pub(crate) attributes: String,
}

#[derive(Debug)]
pub(crate) struct ChangeRequest {
    pub(crate) patch: String,
    pub(crate) expected: String,
}

impl Database {
    pub(crate) fn obtain(&self, request: &ClaimRequest) -> Result<Obtained, Fault> {
        let claim = &request.claim;
        let params = named_params! {
            ":key": claim.key.as_str(),
            ":nonce": nonce_text(claim.nonce),
            ":request": whole(claim.request.get()),
            ":lessee": claim.lessee.as_str(),
            ":ttl": micros(claim.ttl),
            ":attributes": request.attributes,
        };
        match self.granted(claim, &self.settings.statements.obtain, params)? {
            Granted::Now(granted) => Ok(granted),
            Granted::Not(Some(row)) => Ok(Obtained::Held(row.refuser(claim))),
            Granted::Not(None) => Err(Fault::corrupt(format!(
                "the row of {} disappeared within a transaction",
                claim.key
            ))),
        }
    }

    pub(crate) fn adopt(&self, grant: &Grant, request: &ClaimRequest) -> Result<Obtained, Fault> {
        let claim = &request.claim;
        let params = named_params! {
            ":key": grant.key.as_str(),
            ":handed": nonce_text(grant.nonce),
            ":token": whole(grant.token.get()),
            ":nonce": nonce_text(claim.nonce),
            ":request": whole(claim.request.get()),
            ":lessee": claim.lessee.as_str(),
            ":ttl": micros(claim.ttl),
            ":attributes": request.attributes,
            ":parent": claim.parent.as_ref().map(|session| session.key.as_str()),
            ":parent_token": claim.parent.as_ref().map(|session| whole(session.token.get())),
        };
        match self.granted(claim, &self.settings.statements.adopt, params)? {
            Granted::Now(granted) => Ok(granted),
            Granted::Not(row) => {
                let holder = row.and_then(|row| row.holder());
                let former = || grant.holder(Some(Duration::ZERO));
                Ok(Obtained::Held(holder.unwrap_or_else(former)))
            }
        }
    }

    pub(crate) fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, Fault> {
        let params = named_params! {
            ":key": grant.key.as_str(),
            ":nonce": nonce_text(grant.nonce),
            ":token": whole(grant.token.get()),
            ":ttl": micros(grant.ttl),
            ":beat": whole(beat.get()),
        };
        let row = match self.write(&grant.key, &self.settings.statements.heartbeat, params)? {
            Applied::Yes => return Ok(Heartbeat::Extended),
            Applied::No(None) => return Ok(Heartbeat::Lost(LossCause::Expired)),
            Applied::No(Some(row)) => row,
        };
        Ok(match row.current(grant) {
            Err(cause) => Heartbeat::Lost(cause),
            Ok(current) if current.is_evicted => Heartbeat::Lost(LossCause::Revoked),
            Ok(_) => Heartbeat::Overtaken,
        })
    }

    pub(crate) fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), Fault> {
        let Some(reserved) = reserved else {
            let params = named_params! {
                ":key": grant.key.as_str(),
                ":nonce": nonce_text(grant.nonce),
                ":token": whole(grant.token.get()),
            };
            if self.execute(&self.settings.statements.release, params)? > 0 {
                self.hand_on(&grant.key)?;
            }
            return Ok(());
        };
        self.reserve(grant, reserved, None).map(drop)
    }

    pub(crate) fn reserve(
        &self,
        grant: &Grant,
        reserved: Duration,
        only_for: Option<&Lessee>,
    ) -> Result<Written, Fault> {
        let params = named_params! {
            ":key": grant.key.as_str(),
            ":nonce": nonce_text(grant.nonce),
            ":token": whole(grant.token.get()),
            ":reserved": micros(reserved),
            ":only_for": only_for.map(Lessee::as_str),
        };
        self.freed_under(grant, &self.settings.statements.reserve, params)
    }

    pub(crate) fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, Fault> {
        let Some(token) = grant.token() else { return Ok(false) };
        let row = self.row(key)?;
        let current = row.as_ref().and_then(|row| row.grant.as_ref());
        if current.is_some_and(|current| current.parent.is_some()) {
            let text = "a lease under a session cannot be evicted: evict its session";
            return Err(Fault::new(StoreErrorKind::Refused, text));
        }
        let params = named_params! { ":key": key.as_str(), ":token": whole(token.get()) };
        let applied = self.write(key, &self.settings.statements.evict, params)?;
        Ok(matches!(applied, Applied::Yes))
    }

    pub(crate) fn create(&self, key: &LeaseKey, attributes: &str) -> Result<bool, Fault> {
        let params = named_params! { ":key": key.as_str(), ":attributes": attributes };
        Ok(self.execute(&self.settings.statements.create, params)? > 0)
    }

    pub(crate) fn update(&self, grant: &Grant, change: &ChangeRequest) -> Result<Written, Fault> {
        let params = named_params! {
            ":key": grant.key.as_str(),
            ":nonce": nonce_text(grant.nonce),
            ":token": whole(grant.token.get()),
            ":patch": change.patch,
            ":expected": change.expected,
        };
        self.written_under(grant, &self.settings.statements.update, params)
    }

    pub(crate) fn delete(&self, grant: &Grant) -> Result<Written, Fault> {
        let params = named_params! {
            ":key": grant.key.as_str(),
            ":nonce": nonce_text(grant.nonce),
            ":token": whole(grant.token.get()),
        };
        self.freed_under(grant, &self.settings.statements.delete, params)
    }

    fn freed_under(
        &self,
        grant: &Grant,
        statement: &str,
        params: Params<'_>,
    ) -> Result<Written, Fault> {
        let written = self.written_under(grant, statement, params)?;
        if written == Written::Applied {
            self.hand_on(&grant.key)?;
        }
        Ok(written)
    }

    pub(crate) fn page(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Result<Row, Fault>>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params = named_params! { ":prefix": prefix, ":after": after, ":limit": limit };
        self.rows(&self.settings.statements.list, params, Row::read)
    }

    /// Removes rows without a record, a lease or a reservation, if their last grant ended before `kept`.
    pub(crate) fn remove_outdated(&self, kept: Duration) -> Result<usize, Fault> {
        self.execute(&self.settings.statements.remove_places, &[])?;
        let params = named_params! { ":kept": micros(kept) };
        self.execute(&self.settings.statements.remove, params)
    }

    /// If the write changes nothing, the answer comes from the row.
    fn written_under(
        &self,
        grant: &Grant,
        statement: &str,
        params: Params<'_>,
    ) -> Result<Written, Fault> {
        Ok(match self.write(&grant.key, statement, params)? {
            Applied::Yes => Written::Applied,
            Applied::No(None) => Written::Lost(LossCause::Expired),
            Applied::No(Some(row)) => {
                row.current(grant).map_or_else(Written::Lost, |_current| Written::Unexpected)
            }
        })
    }

    /// Repeats the write if the row is of another boot.
    pub(crate) fn write(
        &self,
        key: &LeaseKey,
        statement: &str,
        params: Params<'_>,
    ) -> Result<Applied, Fault> {
        if self.execute(statement, params)? > 0 {
            return Ok(Applied::Yes);
        }
        let row = self.row(key)?;
        if !row.as_ref().is_some_and(|row| row.is_of_another_boot) {
            return Ok(Applied::No(row.map(Box::new)));
        }
        self.see(key)?;
        if self.execute(statement, params)? > 0 {
            return Ok(Applied::Yes);
        }
        Ok(Applied::No(self.row(key)?.map(Box::new)))
    }

    /// Repeats the statement if the row is of another boot. If it grants nothing, an earlier request of the
    /// claim may have been granted.
    pub(crate) fn granted(
        &self,
        claim: &Claim,
        statement: &str,
        params: Params<'_>,
    ) -> Result<Granted, Fault> {
        if let Some(granted) = self.granted_now(claim, statement, params)? {
            return Ok(Granted::Now(granted));
        }
        let mut row = self.row(&claim.key)?;
        if row.as_ref().is_some_and(|row| row.is_of_another_boot) {
            self.see(&claim.key)?;
            if let Some(granted) = self.granted_now(claim, statement, params)? {
                return Ok(Granted::Now(granted));
            }
            row = self.row(&claim.key)?;
        }
        let grant = row.as_ref().and_then(|row| row.granted_to(claim));
        match (row, grant) {
            (Some(row), Some(grant)) => {
                Ok(Granted::Now(Obtained::Granted(grant, row.attributes()?)))
            }
            (row, _) => Ok(Granted::Not(row)),
        }
    }

    fn granted_now(
        &self,
        claim: &Claim,
        statement: &str,
        params: Params<'_>,
    ) -> Result<Option<Obtained>, Fault> {
        let granted = self.rows(statement, params, read_granted)?;
        let Some((token, text)) = granted.into_iter().next() else { return Ok(None) };
        let token = u64::try_from(token).ok().and_then(|token| FencingToken::new(token).ok());
        let (Some(token), Some(attributes)) = (token, attributes::read(&text)) else {
            return Err(Fault::corrupt(format!(
                "the row of the key {} has a token or attributes that this version does not write: another \
                 program has changed it",
                claim.key
            )));
        };
        Ok(Some(Obtained::Granted(claim.granted(token), attributes)))
    }
}

/// A refusal has the row that explains it.
pub(crate) enum Applied {
    Yes,
    No(Option<Box<Row>>),
}

pub(crate) enum Granted {
    Now(Obtained),
    Not(Option<Row>),
}

fn read_granted(row: &SqlRow<'_>) -> Result<(i64, String), rusqlite::Error> {
    Ok((row.get(0)?, row.get(1)?))
}

/// Rounds up.
pub(crate) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_nanos().div_ceil(1000)).map_or(LONGEST, |micros| micros.min(LONGEST))
}

pub(crate) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The limit is about 73,000 years, so the sum with a boot time still fits.
const LONGEST: i64 = i64::MAX / 4;
