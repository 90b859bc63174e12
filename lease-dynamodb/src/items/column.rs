//! Which attribute of an item says what.

use std::collections::HashMap;

use lease_core::InvalidInput;

/// What an attribute of an item says about its lease.
///
/// Each has a default name; another can be given to adopt an existing table:
/// [`DynamoDbStoreBuilder::with_column`](crate::DynamoDbStoreBuilder::with_column).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Column {
    /// `lease_key`, S: the table's hash key.
    Key,
    /// `lessee`, S: who holds the lease. Absent, NULL or empty where nobody does.
    Lessee,
    /// `nonce`, S: of the last grant. Kept after a release, so that a late duplicate is known.
    Nonce,
    /// `token`, N: of the last grant.
    Token,
    /// `beat`, N: the number of the last heartbeat within its grant.
    Beat,
    /// `ttl_ms`, N: how long the item must stay as it is before it may be taken.
    TtlMs,
    /// `expires_at`, N: milliseconds since 1970, in DynamoDB's time.
    ExpiresAt,
    /// `offered_to`, S: for whom alone the key is free, after a transfer.
    OfferedTo,
    /// `reserved_until`, N: until when an offer or a reservation stands; milliseconds since
    /// 1970, in DynamoDB's time.
    ReservedUntil,
    /// `former`, S: who released the lease last.
    Former,
    /// `evicted`, BOOL: an operator has ended the lease; heartbeats are refused.
    Evicted,
    /// `deleted`, BOOL: the record is gone; only its token and nonce are remembered.
    Deleted,
    /// `lasting`, S: the item is never purged, since it was created or carries attributes.
    Lasting,
    /// `purge_at`, N: seconds since 1970 after which the table's TTL may delete the item. On a
    /// lasting item a text, which the TTL ignores.
    PurgeAt,
}

impl Column {
    const ALL: [Self; 14] = [
        Self::Key,
        Self::Lessee,
        Self::Nonce,
        Self::Token,
        Self::Beat,
        Self::TtlMs,
        Self::ExpiresAt,
        Self::OfferedTo,
        Self::ReservedUntil,
        Self::Former,
        Self::Evicted,
        Self::Deleted,
        Self::Lasting,
        Self::PurgeAt,
    ];

    /// Its name in a table that was made for leases, and in the expressions of this crate.
    fn default_name(self) -> &'static str {
        match self {
            Self::Key => "lease_key",
            Self::Lessee => "lessee",
            Self::Nonce => "nonce",
            Self::Token => "token",
            Self::Beat => "beat",
            Self::TtlMs => "ttl_ms",
            Self::ExpiresAt => "expires_at",
            Self::OfferedTo => "offered_to",
            Self::ReservedUntil => "reserved_until",
            Self::Former => "former",
            Self::Evicted => "evicted",
            Self::Deleted => "deleted",
            Self::Lasting => "lasting",
            Self::PurgeAt => "purge_at",
        }
    }
}

/// The name of each column in one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    names: HashMap<Column, String>,
}

impl Columns {
    pub(crate) fn rename(&mut self, column: Column, name: String) {
        self.names.insert(column, name);
    }

    pub(crate) fn name(&self, column: Column) -> &str {
        self.names.get(&column).map_or_else(|| column.default_name(), String::as_str)
    }

    /// Whether `attribute` is one of ours, and not a user's.
    pub(crate) fn reserves(&self, attribute: &str) -> bool {
        Column::ALL.iter().any(|column| self.name(*column) == attribute)
    }

    /// The name behind `placeholder`, which is a column's default name.
    pub(crate) fn behind(&self, placeholder: &str) -> Option<String> {
        let column = Column::ALL.iter().find(|column| column.default_name() == placeholder)?;
        Some(self.name(*column).to_owned())
    }

    pub(crate) fn check(&self) -> Result<(), InvalidInput> {
        for (place, column) in Column::ALL.iter().enumerate() {
            let name = self.name(*column);
            if name.is_empty() || name.len() > 255 {
                return Err(InvalidInput::new(format!(
                    "column name {name:?} has {} bytes: a column's name is 1 to 255 bytes",
                    name.len()
                )));
            }
            let twin = Column::ALL.iter().skip(place + 1);
            if let Some(twin) = twin.into_iter().find(|twin| self.name(**twin) == name) {
                return Err(InvalidInput::new(format!(
                    "column {name:?} would be both {column:?} and {twin:?}: each needs its own"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_columns_of_one_name_are_refused() {
        let mut columns = Columns::default();
        assert!(columns.check().is_ok());

        columns.rename(Column::Lessee, "token".to_owned());

        assert_eq!(
            columns.check().unwrap_err().to_string(),
            "column \"token\" would be both Lessee and Token: each needs its own",
        );
    }
}
