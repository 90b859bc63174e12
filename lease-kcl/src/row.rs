//! A row of a KCL table: what KCL keeps there, and what this crate keeps beside it.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::{Attributes, FencingToken, Grant, Lessee, Nonce, StoreError, Value};
use lease_dynamodb::parts::{RawItem, corrupt, from_dynamodb};

use super::sight::{Life, Sight};
use crate::position::InitialPosition;
use crate::row::{AT_TIMESTAMP, CHECKPOINT, LATEST, OWNER, TIMESTAMP};

/// The lease of a shard, as a row has it.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Whose it is; while KCL 3 hands it over, who will have it.
    pub(super) owner: Option<Lessee>,
    /// Who works on it until the hand-over of KCL 3 is done.
    pub(super) processor: Option<Lessee>,
    counter: u64,
    /// What this crate has written there, if it ever did.
    mark: Option<Mark>,
    pub(super) attributes: Attributes,
}

/// What this crate writes on a row beside KCL's own attributes.
///
/// KCL ignores attributes that it does not know, and changes rows by updates that name theirs, so
/// these stay until the row is deleted. They may be outdated therefore: each write of ours notes the
/// counter that it leaves, every write of KCL that changes an owner moves the counter on, and only
/// while both are equal is the last word on the row ours.
#[derive(Debug, Clone)]
struct Mark {
    /// Kept after the release, so that late duplicates are known.
    nonce: String,
    token: FencingToken,
    beat: u64,
    ttl: Duration,
    /// `leaseCounter` as our last write left it.
    counter: u64,
    /// Nobody has it, and it is kept for so long: for its owner, or where there is none, for later.
    reserved: Option<Duration>,
    /// Who gave it back last.
    former: Option<Lessee>,
    evicted: bool,
}

impl Row {
    /// Reads the row called `lease_key`; `None` where it is not a lease. Since 3.5, KCL keeps rows
    /// of workers, streams and its leader in the same table.
    ///
    /// # Errors
    ///
    /// Where it is a lease that no version of KCL would write.
    pub(super) fn read(
        lease_key: &str,
        mut raw: RawItem,
        initial: InitialPosition,
    ) -> Result<Option<Self>, StoreError> {
        let mut fields = Fields { lease_key, raw: &mut raw };
        // Absent in rows of earlier versions, which have leases only.
        if fields.text(ENTITY)?.is_some_and(|entity| entity != "LEASE") {
            return Ok(None);
        }
        fields.raw.remove(LEASE_KEY);
        let counter = fields.number(COUNTER)?;
        let counter = counter.ok_or_else(|| corrupt(lease_key, COUNTER, "absent"))?;
        let owner = fields.lessee(OWNER)?;
        let processor = fields.lessee(PROCESSOR)?;
        let mark = fields.mark()?;
        let others = raw.into_iter();
        // What this version does not know is another program's, and left as it is.
        let mut attributes: Attributes =
            others.filter_map(|(name, value)| Some((name, from_dynamodb(value).ok()?))).collect();
        tell_the_time(&mut attributes, initial);
        Ok(Some(Self { owner, processor, counter, mark, attributes }))
    }

    /// Whether this crate wrote last to it, of all who write who owns it.
    pub(super) fn is_ours(&self) -> bool {
        self.processor.is_none() && self.mark.as_ref().is_some_and(|m| m.counter == self.counter)
    }

    /// For how long it is kept, where its holder gave it back for somebody or for later.
    pub(super) fn reserved(&self) -> Option<Duration> {
        self.mark.as_ref().filter(|_| self.is_ours())?.reserved
    }

    /// How long a grant of ours lasts without a heartbeat.
    pub(super) fn ttl(&self) -> Option<Duration> {
        self.mark.as_ref().filter(|_| self.is_ours()).map(|mark| mark.ttl)
    }

    pub(super) fn evicted(&self) -> bool {
        self.is_ours() && self.mark.as_ref().is_some_and(|mark| mark.evicted)
    }

    pub(super) fn beat(&self) -> u64 {
        self.mark.as_ref().map_or(0, |mark| mark.beat)
    }

    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    /// The token of our last grant; `None` before the first.
    pub(super) fn token(&self) -> Option<FencingToken> {
        self.mark.as_ref().map(|mark| mark.token)
    }

    /// That token, or zero: workers of KCL have none.
    pub(super) fn token_or_zero(&self) -> FencingToken {
        self.token().unwrap_or_else(no_token)
    }

    pub(super) fn nonce(&self) -> Option<&str> {
        self.mark.as_ref().map(|mark| mark.nonce.as_str())
    }

    pub(super) fn former(&self) -> Option<&Lessee> {
        self.mark.as_ref()?.former.as_ref()
    }

    /// Whether our last grant was that of a claim with `nonce`.
    pub(super) fn carries(&self, nonce: Nonce) -> bool {
        self.nonce() == Some(nonce.to_string().as_str())
    }

    /// Whether our last grant was `grant`.
    pub(super) fn shows(&self, grant: &Grant) -> bool {
        self.carries(grant.nonce) && self.token() == Some(grant.token)
    }

    /// Whether `grant` has it, as far as its ttl has not run out.
    pub(super) fn is_held_by(&self, grant: &Grant) -> bool {
        self.is_ours()
            && self.shows(grant)
            && self.reserved().is_none()
            && self.owner.as_ref() == Some(&grant.lessee)
    }

    /// What must not change for as long as its owner is taken for gone.
    pub(super) fn sight(&self) -> Sight {
        let life = match &self.mark {
            Some(mark) if self.is_ours() => Life::OfGrant {
                nonce: mark.nonce.clone(),
                token: mark.token,
                beat: mark.beat,
                reserved: mark.reserved.is_some(),
            },
            _ => Life::OfKcl { counter: self.counter },
        };
        Sight { owner: self.owner.clone(), life }
    }
}

/// KCL does not write the time that it begins at: it is in the settings of its workers. This crate
/// writes it beside KCL's word, and beside `LATEST`, too: so that what arrives between the first
/// start and the first checkpoint is not skipped.
fn tell_the_time(attributes: &mut Attributes, initial: InitialPosition) {
    match (attributes.get(CHECKPOINT).and_then(Value::as_text), attributes.get(TIMESTAMP)) {
        (Some(LATEST), Some(_)) => {
            attributes.insert(CHECKPOINT.to_owned(), AT_TIMESTAMP.into());
        }
        (Some(AT_TIMESTAMP), None) => {
            if let InitialPosition::AtTimestamp(at) = initial {
                attributes.insert(TIMESTAMP.to_owned(), at.into());
            }
        }
        _ => (),
    }
}

/// The key of the lease that `raw` is the row of; in rows of others, their own.
pub(super) fn key_of(raw: &RawItem) -> Option<&str> {
    raw.get(LEASE_KEY)?.as_s().ok().map(String::as_str)
}

/// Zero: of what no grant was made.
pub(super) fn no_token() -> FencingToken {
    // Zero is in range; what is not, would be larger than all.
    FencingToken::new(0).unwrap_or(FencingToken::MAX)
}

/// Whether an attribute is the lease's own, and no user's.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Takes the lease's own attributes out of a row.
struct Fields<'a> {
    lease_key: &'a str,
    raw: &'a mut RawItem,
}

impl Fields<'_> {
    fn mark(&mut self) -> Result<Option<Mark>, StoreError> {
        let nonce = self.text(NONCE)?;
        let token = self.number(TOKEN)?;
        let mark = Mark {
            nonce: nonce.clone().unwrap_or_default(),
            token: FencingToken::new(token.unwrap_or(0))
                .map_err(|refused| corrupt(self.lease_key, TOKEN, refused))?,
            beat: self.number(BEAT)?.unwrap_or(0),
            ttl: Duration::from_millis(self.number(TTL)?.unwrap_or(0)),
            counter: self.number(LAST_COUNTER)?.unwrap_or(0),
            reserved: self.number(RESERVED_FOR)?.map(Duration::from_millis),
            former: self.lessee(FORMER)?,
            evicted: self.raw.remove(EVICTED).is_some(),
        };
        Ok(nonce.and(token).map(|_| mark))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        match self.raw.remove(name) {
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(AttributeValue::S(text)) if text.is_empty() => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(other) => Err(self.corrupt(name, format_args!("not a text: {other:?}"))),
        }
    }

    fn lessee(&mut self, name: &str) -> Result<Option<Lessee>, StoreError> {
        let text = self.text(name)?;
        text.map(|text| Lessee::new(text).map_err(|refused| self.corrupt(name, refused)))
            .transpose()
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, StoreError> {
        match self.raw.remove(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => match digits.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.corrupt(name, format_args!("{digits}, not a whole number"))),
            },
            Some(other) => Err(self.corrupt(name, format_args!("not a number: {other:?}"))),
        }
    }

    fn corrupt(&self, name: &str, found: impl fmt::Display) -> StoreError {
        corrupt(self.lease_key, name, found)
    }
}

pub(super) const LEASE_KEY: &str = "leaseKey";
pub(super) const COUNTER: &str = "leaseCounter";
const PROCESSOR: &str = "checkpointOwner";
const ENTITY: &str = "entityType";
const NONCE: &str = "grantNonce";
const TOKEN: &str = "grantToken";
const BEAT: &str = "grantBeat";
const TTL: &str = "grantTtlMs";
const LAST_COUNTER: &str = "grantCounter";
const RESERVED_FOR: &str = "grantReservedMs";
const FORMER: &str = "grantFormer";
const EVICTED: &str = "grantEvicted";

const RESERVED: [&str; 13] = [
    LEASE_KEY,
    COUNTER,
    OWNER,
    PROCESSOR,
    ENTITY,
    NONCE,
    TOKEN,
    BEAT,
    TTL,
    LAST_COUNTER,
    RESERVED_FOR,
    FORMER,
    EVICTED,
];
