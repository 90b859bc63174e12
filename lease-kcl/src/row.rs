//! A row of a KCL table, with KCL's attributes and this crate's own.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_aws::table_client::{RawItem, corrupt_column, from_dynamodb};
use lease_core::store::{Grant, Nonce};
use lease_core::{Attributes, FencingToken, Lessee, StoreError, Value};
use lease_kinesis::InitialPosition;
use lease_kinesis::extension::shard_row::{AT_TIMESTAMP, CHECKPOINT, OWNER, SHARD_END, TIMESTAMP};

use crate::liveness::{Liveness, LivenessSign};

#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// During a hand-over of KCL 3, this field has the next owner.
    pub(crate) owner: Option<Lessee>,
    /// The worker that processes the shard until the hand-over of KCL 3 is done.
    pub(crate) processor: Option<Lessee>,
    counter: u64,
    /// `None` if this crate has never written to the row.
    mark: Option<Mark>,
    pub(crate) attributes: Attributes,
}

/// The attributes that this crate adds to a row. KCL keeps them, so they may be outdated. If `leaseCounter`
/// and `grantCounter` are equal, the last write came from this crate. See docs/design/011-kcl-tables.md.
#[derive(Debug, Clone)]
struct Mark {
    /// The nonce of the last granted claim. A release keeps the nonce, to recognise late duplicates.
    nonce: String,
    token: FencingToken,
    beat: u64,
    ttl: Duration,
    /// The value of `leaseCounter` after our last write.
    counter: u64,
    /// For this time after a release, only the row's owner may obtain the lease.
    reserved: Option<Duration>,
    former: Option<Lessee>,
    evicted: bool,
}

impl Row {
    /// `None` if the row is not a lease: KCL 3.5 and later keeps other rows in the same table. Fails if an
    /// attribute is missing, or has a value that no version of KCL writes.
    pub(crate) fn read(
        lease_key: &str,
        mut raw: RawItem,
        initial: InitialPosition,
    ) -> Result<Option<Self>, StoreError> {
        let mut fields = Fields { lease_key, raw: &mut raw };
        // Earlier versions write no entity type. All of their rows are leases.
        if fields.text(ENTITY)?.is_some_and(|entity| entity != "LEASE") {
            return Ok(None);
        }
        fields.raw.remove(LEASE_KEY);
        let counter = fields.number(COUNTER)?;
        let counter = counter.ok_or_else(|| corrupt_column(lease_key, COUNTER, "absent"))?;
        let owner = fields.lessee(OWNER)?;
        let processor = fields.lessee(PROCESSOR)?;
        let mark = fields.mark()?;
        let others = raw.into_iter();
        // Unknown attributes belong to other programs, and stay unchanged.
        let mut attributes: Attributes =
            others.filter_map(|(name, value)| Some((name, from_dynamodb(value).ok()?))).collect();
        complete_start_time(&mut attributes, initial);
        Ok(Some(Self { owner, processor, counter, mark, attributes }))
    }

    /// Whether KCL has not taken, assigned or renewed the lease since this crate's last write.
    pub(crate) fn is_ours(&self) -> bool {
        self.processor.is_none() && self.mark.as_ref().is_some_and(|m| m.counter == self.counter)
    }

    pub(crate) fn reserved(&self) -> Option<Duration> {
        self.mark.as_ref().filter(|_| self.is_ours())?.reserved
    }

    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.mark.as_ref().filter(|_| self.is_ours()).map(|mark| mark.ttl)
    }

    /// No worker reads the shard of such a row.
    pub(crate) fn has_ended(&self) -> bool {
        self.attributes.get(CHECKPOINT).and_then(Value::as_text) == Some(SHARD_END)
    }

    pub(crate) fn evicted(&self) -> bool {
        self.is_ours() && self.mark.as_ref().is_some_and(|mark| mark.evicted)
    }

    pub(crate) fn beat(&self) -> u64 {
        self.mark.as_ref().map_or(0, |mark| mark.beat)
    }

    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.mark.as_ref().map(|mark| mark.token)
    }

    pub(crate) fn token_or_zero(&self) -> FencingToken {
        self.token().unwrap_or_else(no_token)
    }

    pub(crate) fn nonce(&self) -> Option<&str> {
        self.mark.as_ref().map(|mark| mark.nonce.as_str())
    }

    pub(crate) fn former(&self) -> Option<&Lessee> {
        self.mark.as_ref()?.former.as_ref()
    }

    pub(crate) fn carries(&self, nonce: Nonce) -> bool {
        self.nonce() == Some(nonce.to_string().as_str())
    }

    pub(crate) fn shows(&self, grant: &Grant) -> bool {
        self.carries(grant.nonce) && self.token() == Some(grant.token)
    }

    /// Does not check whether the ttl has passed.
    pub(crate) fn is_held_by(&self, grant: &Grant) -> bool {
        self.is_ours()
            && self.shows(grant)
            && self.reserved().is_none()
            && self.owner.as_ref() == Some(&grant.lessee)
    }

    pub(crate) fn liveness(&self) -> Liveness {
        let sign = match &self.mark {
            Some(mark) if self.is_ours() && self.owner.is_some() => LivenessSign::Heartbeat {
                nonce: mark.nonce.clone(),
                token: mark.token,
                beat: mark.beat,
                reserved: mark.reserved.is_some(),
            },
            _ => LivenessSign::KclCounter(self.counter),
        };
        Liveness { owner: self.owner.clone(), processor: self.processor.clone(), sign }
    }
}

/// Completes a start position without a time by the time in the setting. KCL itself writes no time.
fn complete_start_time(attributes: &mut Attributes, initial: InitialPosition) {
    let word = attributes.get(CHECKPOINT).and_then(Value::as_text);
    if word == Some(AT_TIMESTAMP)
        && !attributes.contains_key(TIMESTAMP)
        && let InitialPosition::AtTimestamp(at) = initial
    {
        attributes.insert(TIMESTAMP.to_owned(), at.into());
    }
}

/// The row may be another entity of KCL 3.5.
pub(crate) fn key_of(raw: &RawItem) -> Option<&str> {
    raw.get(LEASE_KEY)?.as_s().ok().map(String::as_str)
}

/// The token of a lease without a grant.
pub(crate) fn no_token() -> FencingToken {
    // Zero is a valid token, so `MAX` is never used.
    FencingToken::new(0).unwrap_or(FencingToken::MAX)
}

/// Users of the table must not set an attribute of the lease itself.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

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
                .map_err(|refused| corrupt_column(self.lease_key, TOKEN, refused))?,
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
            Some(other) => Err(self.corrupt(name, format_args!("not a string: {other:?}"))),
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
        corrupt_column(self.lease_key, name, found)
    }
}

pub(crate) const LEASE_KEY: &str = "leaseKey";
pub(crate) const COUNTER: &str = "leaseCounter";
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
