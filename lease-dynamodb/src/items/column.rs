//! The columns of a lease.

use std::collections::HashMap;

use lease_aws::table_client::ColumnName;
use lease_core::InvalidInput;

/// A column in which a store keeps part of a lease.
///
/// Each column has a default name.
/// [`DynamoDbStoreBuilder::with_column`](crate::DynamoDbStoreBuilder::with_column) gives a column
/// another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Column {
    /// `lease_key`, S: the table's hash key.
    Key,
    /// `lessee`, S: the holder. Absent, NULL or empty if the lease has no holder.
    Lessee,
    /// `nonce`, S: the nonce of the last grant. A release keeps it, to detect late duplicates.
    Nonce,
    /// `token`, N: the fencing token of the last grant.
    Token,
    /// `beat`, N: the number of the last heartbeat within the grant.
    Beat,
    /// `ttl_ms`, N: a contender takes the item by observation if the item was unchanged for this
    /// time.
    TtlMs,
    /// `expires_at`, N: the expiry by DynamoDB's time, in milliseconds since 1970.
    ExpiresAt,
    /// `offered_to`, S: after a transfer, the only lessee that may obtain the key.
    OfferedTo,
    /// `reserved_until`, N: the end of a reservation by DynamoDB's time, in milliseconds since
    /// 1970.
    ReservedUntil,
    /// `former`, S: the lessee that released the lease last.
    Former,
    /// `evicted`, BOOL: an operator has ended the lease. The store refuses its heartbeats.
    Evicted,
    /// `deleted`, BOOL: the record is deleted. The item keeps only the token and nonce.
    Deleted,
    /// `lasting`, S: DynamoDB never purges the item, since the item was created or has attributes.
    Lasting,
    /// `purge_at`, N: the table's TTL may delete the item after this time, in seconds since 1970. A
    /// lasting item has a string here, which the TTL ignores.
    PurgeAt,
    /// `parent`, S: the key of the session under which the key is held. Absent if the lease has a ttl.
    Parent,
    /// `parent_token`, N: the token of the session in `parent`.
    ParentToken,
}

impl Column {
    const ALL: [Self; 16] = [
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
        Self::Parent,
        Self::ParentToken,
    ];

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
            Self::Parent => "parent",
            Self::ParentToken => "parent_token",
        }
    }
}

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

    pub(crate) fn contains(&self, attribute: &str) -> bool {
        Column::ALL.iter().any(|column| self.name(*column) == attribute)
    }

    /// The placeholder of a column is the column's default name.
    pub(crate) fn of_placeholder(&self, placeholder: &str) -> Option<ColumnName> {
        let column = Column::ALL.iter().find(|column| column.default_name() == placeholder)?;
        let name = self.name(*column);
        // `token` is a reserved word of DynamoDB. No other default name is reserved.
        // <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html>
        if name == placeholder && *column != Column::Token {
            return Some(ColumnName::Plain);
        }
        Some(ColumnName::Renamed(name.to_owned()))
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidInput> {
        for (index, column) in Column::ALL.iter().enumerate() {
            let name = self.name(*column);
            if name.is_empty() || name.len() > 255 {
                return Err(InvalidInput::new(format!(
                    "column name {name:?} has {} bytes: a column's name is 1 to 255 bytes",
                    name.len()
                )));
            }
            let mut others = Column::ALL.iter().skip(index + 1);
            if let Some(other) = others.find(|other| self.name(**other) == name) {
                return Err(InvalidInput::new(format!(
                    "column {name:?} would be both {column:?} and {other:?}: each needs its own"
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
    fn two_columns_with_one_name_are_refused() {
        let mut columns = Columns::default();
        assert!(columns.validate().is_ok());

        columns.rename(Column::Lessee, "token".to_owned());

        assert_eq!(
            columns.validate().unwrap_err().to_string(),
            "column \"token\" would be both Lessee and Token: each needs its own",
        );
    }
}
