//! Parses an item of the table.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_aws::table_client::{RawItem, corrupt_column, from_dynamodb};
use lease_core::store::{Beat, Grant, LastGrant, LeaseRecord, Nonce, Parent, Reserved, Timestamp};
use lease_core::{Attributes, FencingToken, Holder, LeaseKey, Lessee, StoreError};

use super::column::{Column, Columns};
use super::foreign::{Digest, ForeignItem, lock_client_columns, lock_client_ttl};

#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) lessee: Option<Lessee>,
    /// A string, since an adopted table may contain values that are not nonces of this crate.
    nonce: Option<String>,
    pub(crate) token: Option<FencingToken>,
    /// Zero on an item of another program, which has no token.
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
    pub(crate) parent: Option<Parent>,
    pub(crate) attributes: Attributes,
    /// The whole item, if its holder may be another program.
    pub(crate) foreign: Option<ForeignItem>,
}

/// The columns that change with every grant, heartbeat and release. All columns, if another program
/// may have written the item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) lessee: Option<Lessee>,
    pub(crate) token: Option<FencingToken>,
    pub(crate) beat: Option<Beat>,
    pub(crate) foreign: Option<Digest>,
}

impl Item {
    pub(crate) fn read(key: &str, mut raw: RawItem, columns: &Columns) -> Result<Self, StoreError> {
        let whole = may_be_foreign(&raw, columns).then(|| ForeignItem::of(&raw, columns));
        let lock_client_ttl = lock_client_ttl(&raw, columns);
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
            ttl: fields.number(Column::TtlMs)?.map(Duration::from_millis).max(lock_client_ttl),
            expires_at: fields.number(Column::ExpiresAt)?.map(Timestamp::from_millis),
            offered_to: fields.lessee(Column::OfferedTo)?,
            reserved_until: fields.number(Column::ReservedUntil)?.map(Timestamp::from_millis),
            former: fields.lessee(Column::Former)?,
            evicted: fields.flag(Column::Evicted),
            deleted: fields.flag(Column::Deleted),
            lasting: fields.flag(Column::Lasting),
            parent: fields.parent()?,
            attributes: Attributes::new(),
            foreign: None,
        };
        let foreign = whole.filter(|_| item.lessee.is_some());
        let attributes = raw
            .into_iter()
            .map(|(name, value)| match from_dynamodb(value) {
                Ok(value) => Ok((name, value)),
                Err(unreadable) => Err(corrupt_column(key, &name, unreadable)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { attributes, foreign, ..item })
    }

    /// A late duplicate of the claim has the same nonce, but another token.
    pub(crate) fn has_grant(&self, grant: &Grant) -> bool {
        self.has_nonce(grant.nonce) && self.token_or_zero == grant.token
    }

    pub(crate) fn has_nonce(&self, nonce: Nonce) -> bool {
        self.nonce.as_deref() == Some(nonce.to_string().as_str())
    }

    pub(crate) fn observed(&self) -> Observed {
        Observed {
            lessee: self.lessee.clone(),
            token: self.token,
            beat: self.beat,
            foreign: self.foreign.as_ref().map(|foreign| foreign.digest),
        }
    }

    pub(crate) fn into_record(
        self,
        key: LeaseKey,
        holder: Option<Holder>,
        reserved: Option<Reserved>,
    ) -> LeaseRecord {
        // Every write under a grant compares the lessee. So a grant without a lessee in the item
        // has ended.
        let last_grant = match (&self.lessee, self.token) {
            (None, Some(_)) => LastGrant::Ended,
            _ => LastGrant::Open,
        };
        let record = LeaseRecord::new(key, holder, self.token, self.attributes);
        record.with_end(last_grant, reserved)
    }
}

/// The lock client can take an item of this store without a change of the token and beat.
fn may_be_foreign(raw: &RawItem, columns: &Columns) -> bool {
    let lacks = |column| !raw.contains_key(columns.name(column));
    lacks(Column::Token)
        || lacks(Column::Beat)
        || lock_client_columns(columns).any(|name| raw.contains_key(name))
}

pub(crate) fn key_of(raw: &RawItem, columns: &Columns) -> Result<LeaseKey, StoreError> {
    let name = columns.name(Column::Key);
    match raw.get(name) {
        Some(AttributeValue::S(key)) => LeaseKey::new(key.as_str()).map_err(|refused| {
            corrupt_column(key, name, format_args!("not a lease key: {refused}"))
        }),
        other => Err(corrupt_column("", name, format_args!("not a string: {other:?}"))),
    }
}

/// Removes the lease's columns from an item, so that the user's attributes remain.
struct Fields<'a> {
    key: &'a str,
    raw: &'a mut RawItem,
    columns: &'a Columns,
}

impl Fields<'_> {
    fn take(&mut self, column: Column) -> Option<AttributeValue> {
        self.raw.remove(self.columns.name(column))
    }

    /// NULL and the empty string count as absent, since other programs write them.
    fn text(&mut self, column: Column) -> Result<Option<String>, StoreError> {
        match self.take(column) {
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(AttributeValue::S(text)) if text.is_empty() => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(other) => Err(self.corrupt(column, format_args!("not a string: {other:?}"))),
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
            // Conditions compare these columns, and do not treat NULL as absent.
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

    fn parent(&mut self) -> Result<Option<Parent>, StoreError> {
        let (key, token) = (self.text(Column::Parent)?, self.number(Column::ParentToken)?);
        match (key, token) {
            (None, None) => Ok(None),
            (Some(key), Some(token)) => {
                let key = LeaseKey::new(key);
                let key = key.map_err(|refused| self.corrupt(Column::Parent, refused))?;
                let token = FencingToken::new(token);
                let token = token.map_err(|refused| self.corrupt(Column::ParentToken, refused))?;
                Ok(Some(Parent::new(key, token)))
            }
            (Some(_), None) => Err(self.corrupt(Column::Parent, HALF_A_SESSION)),
            (None, Some(_)) => Err(self.corrupt(Column::ParentToken, HALF_A_SESSION)),
        }
    }

    fn checked_token(&self, number: u64) -> Result<FencingToken, StoreError> {
        FencingToken::new(number).map_err(|refused| self.corrupt(Column::Token, refused))
    }

    fn flag(&mut self, column: Column) -> bool {
        self.take(column).is_some()
    }

    fn corrupt(&self, column: Column, found: impl std::fmt::Display) -> StoreError {
        corrupt_column(self.key, self.columns.name(column), found)
    }
}

const HALF_A_SESSION: &str = "half of a session: if it is an attribute of an application, give the \
     lease's column another name by `with_column`";

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
    fn other_columns_are_the_users_attributes() {
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

    #[test]
    fn null_or_empty_lessee_is_no_holder() {
        for absent in [AttributeValue::Null(true), s("")] {
            assert_eq!(read(&[("lessee", absent)]).unwrap().lessee, None);
        }
    }

    #[test]
    fn error_names_the_corrupt_column() {
        for (column, value) in [
            ("lessee", AttributeValue::N("1".to_owned())),
            ("token", s("7")),
            ("token", AttributeValue::Null(true)),
            ("beat", AttributeValue::Null(true)),
            ("reserved_until", AttributeValue::Null(true)),
            ("token", AttributeValue::N((1u64 << 53).to_string())),
            ("expires_at", AttributeValue::N("1.5".to_owned())),
            ("parent", s("worker")),
            ("parent_token", AttributeValue::N("7".to_owned())),
        ] {
            let error = read(&[(column, value)]).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains(column), "{source}");
        }
    }
}
