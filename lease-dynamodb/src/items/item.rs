//! One item of the table, as it was read.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::{
    Attributes, Beat, FencingToken, Grant, LeaseKey, LeaseRecord, Lessee, Nonce, StoreError,
};

use crate::column::{Column, Columns};
use crate::foreign::{Digest, Foreign, lock_client_columns, lock_client_ttl};
use crate::parts::{RawItem, corrupt, from_dynamodb};
use crate::time::Timestamp;

#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) lessee: Option<Lessee>,
    /// A text: an adopted table may hold other things than our nonces.
    nonce: Option<String>,
    pub(crate) token: Option<FencingToken>,
    /// The token, or zero on an item of other programs, which keep none.
    pub(crate) token_or_zero: FencingToken,
    pub(crate) beat: Option<Beat>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) offered_to: Option<Lessee>,
    pub(crate) reserved_until: Option<Timestamp>,
    pub(crate) former: Option<Lessee>,
    pub(crate) evicted: bool,
    pub(crate) deleted: bool,
    pub(crate) lasting: bool,
    pub(crate) attributes: Attributes,
    /// The whole item, where its holder may be another program.
    pub(crate) foreign: Option<Foreign>,
}

/// What changes with every grant, heartbeat and release; of an item that another program may have
/// written, everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) lessee: Option<Lessee>,
    pub(crate) token: Option<FencingToken>,
    pub(crate) beat: Option<Beat>,
    pub(crate) foreign: Option<Digest>,
}

impl Item {
    pub(crate) fn read(key: &str, mut raw: RawItem, columns: &Columns) -> Result<Self, StoreError> {
        let whole =
            may_be_foreign(&raw, columns).then(|| Foreign::of(&raw, columns.name(Column::Key)));
        let their_ttl = lock_client_ttl(&raw, columns);
        let mut fields = Fields { key, raw: &mut raw, columns };
        drop(fields.take(Column::Key));
        drop(fields.take(Column::PurgeAt));
        let token = fields.token()?;
        let item = Self {
            lessee: fields.lessee(Column::Lessee)?,
            nonce: fields.text(Column::Nonce)?,
            token,
            token_or_zero: match token {
                Some(token) => token,
                None => fields.checked_token(0)?,
            },
            beat: fields.number(Column::Beat)?.map(Beat::new),
            ttl: fields.number(Column::TtlMs)?.map(Duration::from_millis).max(their_ttl),
            expires_at: fields.number(Column::ExpiresAt)?.map(Timestamp::from_millis),
            offered_to: fields.lessee(Column::OfferedTo)?,
            reserved_until: fields.number(Column::ReservedUntil)?.map(Timestamp::from_millis),
            former: fields.lessee(Column::Former)?,
            evicted: fields.mark(Column::Evicted),
            deleted: fields.mark(Column::Deleted),
            lasting: fields.mark(Column::Lasting),
            attributes: Attributes::new(),
            foreign: None,
        };
        let foreign = whole.filter(|_| item.lessee.is_some());
        let attributes = raw
            .into_iter()
            .map(|(name, value)| match from_dynamodb(value) {
                Ok(value) => Ok((name, value)),
                Err(unreadable) => Err(corrupt(key, &name, unreadable)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { attributes, foreign, ..item })
    }

    /// Whether it shows `grant` itself, and no late duplicate of its claim.
    pub(crate) fn shows(&self, grant: &Grant) -> bool {
        self.carries(grant.nonce) && self.token_or_zero == grant.token
    }

    pub(crate) fn carries(&self, nonce: Nonce) -> bool {
        self.nonce.as_deref() == Some(nonce.to_string().as_str())
    }

    pub(crate) fn sight(&self) -> Sight {
        Sight {
            lessee: self.lessee.clone(),
            token: self.token,
            beat: self.beat,
            foreign: self.foreign.as_ref().map(|foreign| foreign.digest),
        }
    }

    /// The record, where readers may see one; `holder` as judged by the caller.
    pub(crate) fn record(
        self,
        key: LeaseKey,
        holder: Option<lease_core::Holder>,
    ) -> Option<LeaseRecord> {
        (!self.deleted).then(|| LeaseRecord::new(key, holder, self.token, self.attributes))
    }
}

/// Whether another program may have written `raw`. An item of ours that its lock client took over
/// keeps our token and beat, which then stand still.
fn may_be_foreign(raw: &RawItem, columns: &Columns) -> bool {
    let lacks = |column| !raw.contains_key(columns.name(column));
    lacks(Column::Token)
        || lacks(Column::Beat)
        || lock_client_columns(columns).any(|name| raw.contains_key(name))
}

/// The key that `raw` is kept under.
pub(crate) fn key_of(raw: &RawItem, columns: &Columns) -> Result<LeaseKey, StoreError> {
    let name = columns.name(Column::Key);
    match raw.get(name) {
        Some(AttributeValue::S(key)) => LeaseKey::new(key.as_str())
            .map_err(|refused| corrupt(key, name, format_args!("no lease key: {refused}"))),
        other => Err(corrupt("", name, format_args!("not a text: {other:?}"))),
    }
}

/// Takes the lease's own columns out of an item; what is left is the user's.
struct Fields<'a> {
    key: &'a str,
    raw: &'a mut RawItem,
    columns: &'a Columns,
}

impl Fields<'_> {
    fn take(&mut self, column: Column) -> Option<AttributeValue> {
        self.raw.remove(self.columns.name(column))
    }

    /// A text; NULL and the empty one count as absent, since other programs write them so.
    fn text(&mut self, column: Column) -> Result<Option<String>, StoreError> {
        match self.take(column) {
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(AttributeValue::S(text)) if text.is_empty() => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(other) => Err(self.corrupt(column, format_args!("not a text: {other:?}"))),
        }
    }

    fn lessee(&mut self, column: Column) -> Result<Option<Lessee>, StoreError> {
        let Some(text) = self.text(column)? else {
            return Ok(None);
        };
        match Lessee::new(text) {
            Ok(lessee) => Ok(Some(lessee)),
            Err(refused) => Err(self.corrupt(column, refused)),
        }
    }

    fn number(&mut self, column: Column) -> Result<Option<u64>, StoreError> {
        match self.take(column) {
            // Conditions compare these, and an absent one is not NULL to them.
            Some(AttributeValue::Null(_))
                if matches!(column, Column::Token | Column::Beat | Column::ReservedUntil) =>
            {
                Err(self.corrupt(column, "NULL: remove the attribute"))
            }
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(AttributeValue::N(digits)) => match digits.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.corrupt(column, format_args!("{digits}, not a whole number"))),
            },
            Some(other) => Err(self.corrupt(column, format_args!("not a number: {other:?}"))),
        }
    }

    fn token(&mut self) -> Result<Option<FencingToken>, StoreError> {
        let number = self.number(Column::Token)?;
        number.map(|number| self.checked_token(number)).transpose()
    }

    fn checked_token(&self, number: u64) -> Result<FencingToken, StoreError> {
        FencingToken::new(number).map_err(|refused| self.corrupt(Column::Token, refused))
    }

    /// Present or not; its value says nothing.
    fn mark(&mut self, column: Column) -> bool {
        self.take(column).is_some()
    }

    fn corrupt(&self, column: Column, found: impl std::fmt::Display) -> StoreError {
        corrupt(self.key, self.columns.name(column), found)
    }
}

#[cfg(test)]
mod tests {
    use lease_core::{StoreErrorKind, Value};

    use super::*;

    fn read(raw: &[(&str, AttributeValue)]) -> Result<Item, StoreError> {
        let raw = raw.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Item::read("job", raw, &Columns::default())
    }

    fn s(text: &str) -> AttributeValue {
        AttributeValue::S(text.to_owned())
    }

    #[test]
    fn what_is_not_the_leases_own_is_the_users() {
        let item = read(&[
            ("lease_key", s("job")),
            ("lessee", s("a")),
            ("note", s("hello")),
            ("purge_at", s("never")),
        ])
        .unwrap();

        assert_eq!(item.lessee, Some("a".parse().unwrap()));
        let note = Attributes::from([("note".to_owned(), Value::from("hello"))]);
        assert_eq!(item.attributes, note);
    }

    // S1.f12
    #[test]
    fn a_lessee_that_is_null_or_empty_is_nobody() {
        for nobody in [AttributeValue::Null(true), s("")] {
            assert_eq!(read(&[("lessee", nobody)]).unwrap().lessee, None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (column, value) in [
            ("lessee", AttributeValue::N("1".to_owned())),
            ("token", s("7")),
            ("token", AttributeValue::Null(true)),
            ("beat", AttributeValue::Null(true)),
            ("reserved_until", AttributeValue::Null(true)),
            ("token", AttributeValue::N((1u64 << 53).to_string())),
            ("expires_at", AttributeValue::N("1.5".to_owned())),
        ] {
            let error = read(&[(column, value)]).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains(column), "{source}");
        }
    }
}
