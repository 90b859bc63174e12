//! One row of the table.

use std::time::Duration;

use lease_core::store::{
    Claim, Grant, LastGrant, LeaseRecord, Nonce, Parent, RequestNumber, Reserved,
};
use lease_core::{Attributes, FencingToken, Holder, LeaseKey, Lessee, LossCause};
use rusqlite::Row as SqlRow;
use uuid::Uuid;

use crate::attributes;
use crate::error::Fault;

/// `now` is the boot time of the read.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) key: LeaseKey,
    pub(crate) token: Option<FencingToken>,
    pub(crate) grant: Option<CurrentGrant>,
    released: Option<(Nonce, Lessee)>,
    reservation: Option<Reservation>,
    freed: Option<i64>,
    pub(crate) is_lasting: bool,
    pub(crate) attributes: String,
    now: i64,
    pub(crate) is_of_another_boot: bool,
}

/// A grant that was not released. The grant may have expired.
#[derive(Debug)]
pub(crate) struct CurrentGrant {
    pub(crate) lessee: Lessee,
    pub(crate) nonce: Nonce,
    pub(crate) request: RequestNumber,
    pub(crate) is_evicted: bool,
    /// The session of the grant, if any. Such a grant does not expire.
    pub(crate) parent: Option<Parent>,
    ttl: i64,
    ends: i64,
}

#[derive(Debug)]
struct Reservation {
    only: Option<Lessee>,
    until: i64,
    length: i64,
}

/// Identifies the time from one grant of a key to the next. Each release also changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure {
    token: Option<FencingToken>,
    is_released: bool,
    freed: Option<i64>,
}

impl Row {
    /// The outer error is SQLite's. The inner error reports an invalid value.
    pub(crate) fn read(row: &SqlRow<'_>) -> Result<Result<Self, Fault>, rusqlite::Error> {
        let key: String = row.get("key")?;
        let columns = Columns {
            boot: row.get("boot")?,
            token: row.get("token")?,
            nonce: row.get("nonce")?,
            request: row.get("request")?,
            lessee: row.get("lessee")?,
            ttl: row.get("ttl")?,
            ends: row.get("ends")?,
            beat: row.get("beat")?,
            evicted: row.get("evicted")?,
            last: row.get("last")?,
            last_lessee: row.get("last_lessee")?,
            freed: row.get("freed")?,
            reserved: row.get("reserved")?,
            until: row.get("until")?,
            only_for: row.get("only_for")?,
            record: row.get("record")?,
            attributes: row.get("attributes")?,
            parent: row.get("parent")?,
            parent_token: row.get("parent_token")?,
            now: row.get("now")?,
            this_boot: row.get("this_boot")?,
        };
        Ok(columns.into_row(&key).ok_or_else(|| unreadable(&key)))
    }

    /// Returns `None` if the lease has expired.
    pub(crate) fn held(&self) -> Option<&CurrentGrant> {
        self.grant.as_ref().filter(|grant| self.left(grant) > 0)
    }

    pub(crate) fn holder(&self) -> Option<Holder> {
        let grant = self.held()?;
        let expires_in = grant.parent.is_none().then(|| micros(self.left(grant)));
        let holder = Holder::new(grant.lessee.clone(), expires_in);
        Some(named(self.token, holder.with_parent(grant.parent.clone())))
    }

    /// The lessee of the lease, of the reservation, or of the last grant. If the claim's own grant has ended, the
    /// lessee of the claim, whose locker then makes a new claim.
    pub(crate) fn refuser(&self, claim: &Claim) -> Holder {
        if let Some(holder) = self.holder() {
            return holder;
        }
        let last = self.released.as_ref();
        let is_spent = self.grant.as_ref().is_some_and(|grant| grant.nonce == claim.nonce)
            || last.is_some_and(|(nonce, _)| *nonce == claim.nonce);
        let former = last.filter(|_| !is_spent).map(|(_, lessee)| lessee);
        let reserved = self.reservation.as_ref().filter(|reserved| self.left_of(reserved) > 0);
        let only = reserved.and_then(|reserved| reserved.only.as_ref());
        let left = reserved.map_or(0, |reserved| self.left_of(reserved));
        let lessee = only.or(former).unwrap_or(&claim.lessee).clone();
        let holder = Holder::new(lessee, Some(micros(left)));
        match self.token {
            Some(token) => holder.with_token(token),
            None => holder,
        }
    }

    /// Returns `None` if the lease has expired.
    pub(crate) fn granted_to(&self, claim: &Claim) -> Option<Grant> {
        let grant = self.held().filter(|grant| grant.nonce == claim.nonce)?;
        Some(claim.granted_to(Some(grant.request), self.token?))
    }

    /// Whether a grant of the claim has ended.
    pub(crate) fn has_ended(&self, nonce: Nonce) -> bool {
        let expired = self.grant.as_ref().filter(|grant| self.left(grant) <= 0);
        expired.is_some_and(|grant| grant.nonce == nonce)
            || self.released.as_ref().is_some_and(|(last, _)| *last == nonce)
    }

    /// Whether the key is free, and not reserved for others.
    pub(crate) fn is_free_for(&self, lessee: &Lessee) -> bool {
        let reserved = self.reservation.as_ref().filter(|reserved| self.left_of(reserved) > 0);
        self.held().is_none()
            && reserved.is_none_or(|reserved| reserved.only.as_ref() == Some(lessee))
    }

    /// The time until the lease or the reservation ends. `None` if the lease ends with its session.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        match self.holder() {
            Some(holder) => holder.expires_in,
            None => self.reservation.as_ref().map(|reserved| micros(self.left_of(reserved))),
        }
    }

    /// Returns the current grant if it is `grant`, or else why `grant` was lost.
    pub(crate) fn current(&self, grant: &Grant) -> Result<&CurrentGrant, LossCause> {
        let is_same = |current: &&CurrentGrant| {
            current.nonce == grant.nonce && self.token == Some(grant.token)
        };
        match self.grant.as_ref().filter(is_same) {
            Some(current) if self.left(current) > 0 => Ok(current),
            Some(_expired) => Err(LossCause::Expired),
            None if self.token > Some(grant.token) => Err(LossCause::Superseded),
            None => {
                let last = self.released.as_ref().map(|(nonce, _)| *nonce);
                let is_last = last == Some(grant.nonce);
                Err(if is_last { LossCause::Revoked } else { LossCause::Expired })
            }
        }
    }

    pub(crate) fn attributes(&self) -> Result<Attributes, Fault> {
        attributes::read(&self.attributes).ok_or_else(|| unreadable(self.key.as_str()))
    }

    /// Returns `None` if the row only remembers a grant.
    pub(crate) fn to_lease_record(&self) -> Result<Option<LeaseRecord>, Fault> {
        let holder = self.holder();
        if !self.is_lasting && holder.is_none() {
            return Ok(None);
        }
        self.to_known_record().map(Some)
    }

    /// Also returns a record for a row that only remembers a grant. A claim under a session names its token.
    pub(crate) fn to_known_record(&self) -> Result<LeaseRecord, Fault> {
        let last_grant = match (&self.grant, self.token) {
            (None, Some(_)) => LastGrant::Ended,
            _ => LastGrant::Open,
        };
        let reserved = self.reservation.as_ref().filter(|reserved| self.left_of(reserved) > 0);
        let reserved = reserved
            .map(|reserved| Reserved::new(reserved.only.clone(), micros(self.left_of(reserved))));
        let attributes = self.attributes()?;
        let record = LeaseRecord::new(self.key.clone(), self.holder(), self.token, attributes);
        Ok(record.with_end(last_grant, reserved))
    }

    pub(crate) fn tenure(&self) -> Tenure {
        Tenure { token: self.token, is_released: self.grant.is_none(), freed: self.freed }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.held().is_none() && !self.is_reserved()
    }

    /// Whether a reservation of the key lasts. A grant ends it.
    pub(crate) fn is_reserved(&self) -> bool {
        self.reservation.as_ref().is_some_and(|reserved| self.left_of(reserved) > 0)
    }

    /// Returns microseconds. A lease of another boot has its whole ttl left.
    fn left(&self, grant: &CurrentGrant) -> i64 {
        if grant.parent.is_some() {
            return i64::MAX;
        }
        if self.is_of_another_boot { grant.ttl } else { grant.ends.saturating_sub(self.now) }
    }

    fn left_of(&self, reservation: &Reservation) -> i64 {
        if self.is_of_another_boot {
            reservation.length
        } else {
            reservation.until.saturating_sub(self.now)
        }
    }
}

struct Columns {
    boot: String,
    token: Option<i64>,
    nonce: Option<String>,
    request: Option<i64>,
    lessee: Option<String>,
    ttl: Option<i64>,
    ends: Option<i64>,
    beat: Option<i64>,
    evicted: i64,
    last: Option<String>,
    last_lessee: Option<String>,
    freed: Option<i64>,
    reserved: Option<i64>,
    until: Option<i64>,
    only_for: Option<String>,
    record: String,
    attributes: String,
    parent: Option<String>,
    parent_token: Option<i64>,
    now: i64,
    this_boot: String,
}

impl Columns {
    fn into_row(self, key: &str) -> Option<Row> {
        let is_lasting = match self.record.as_str() {
            "lasting" => true,
            "temporary" | "deleted" => false,
            _ => return None,
        };
        let grant = match (&self.nonce, self.ends) {
            (None, None) => None,
            (Some(nonce), Some(ends)) => Some(self.grant(read_nonce(nonce)?, ends)?),
            _ => return None,
        };
        if grant.is_some() && self.beat.is_none_or(|beat| beat < 0) {
            return None;
        }
        let released = match self.last {
            Some(nonce) => Some((read_nonce(&nonce)?, Lessee::new(self.last_lessee?).ok()?)),
            None => None,
        };
        let reservation = match self.until {
            Some(until) => Some(Reservation {
                only: self.only_for.map(Lessee::new).transpose().ok()?,
                until,
                length: self.reserved.filter(|length| *length >= 0)?,
            }),
            None => None,
        };
        let token = match self.token {
            Some(token) => Some(FencingToken::new(u64::try_from(token).ok()?).ok()?),
            None => None,
        };
        if grant.is_some() && token.is_none() {
            return None;
        }
        Some(Row {
            key: LeaseKey::new(key).ok()?,
            token,
            grant,
            released,
            reservation,
            freed: self.freed,
            is_lasting,
            attributes: self.attributes,
            now: self.now,
            is_of_another_boot: self.boot != self.this_boot,
        })
    }

    fn grant(&self, nonce: Nonce, ends: i64) -> Option<CurrentGrant> {
        Some(CurrentGrant {
            lessee: Lessee::new(self.lessee.clone()?).ok()?,
            nonce,
            request: RequestNumber::new(u64::try_from(self.request?).ok()?),
            is_evicted: self.evicted != 0,
            parent: match &self.parent {
                Some(session) if ends == NEVER => {
                    let token = FencingToken::new(u64::try_from(self.parent_token?).ok()?).ok()?;
                    Some(Parent::new(LeaseKey::new(session.clone()).ok()?, token))
                }
                _ => None,
            },
            ttl: self.ttl.filter(|ttl| *ttl >= 0)?,
            ends,
        })
    }
}

/// The `ends` of a lease under a session.
const NEVER: i64 = i64::MAX;

pub(crate) fn nonce_text(nonce: Nonce) -> String {
    nonce.get().simple().to_string()
}

pub(crate) fn read_nonce(text: &str) -> Option<Nonce> {
    Uuid::try_parse(text).ok().map(Nonce::new)
}

fn named(token: Option<FencingToken>, holder: Holder) -> Holder {
    match token {
        Some(token) => holder.named_by(token),
        None => holder,
    }
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn unreadable(key: &str) -> Fault {
    let shown: String = key.chars().take(40).collect();
    Fault::corrupt(format!(
        "the row of the key {shown:?} has a value that this version does not write: another program has changed \
         it; release the key's holder, and delete the row"
    ))
}
