//! Items of the table, as DynamoDB stores them.
//!
//! Start with `item`, which parses an item. `column` names the columns of a lease, `foreign`
//! handles items that other programs write, and `attributes` converts the user's attributes.

mod attributes;
mod column;
mod foreign;
mod item;

pub(crate) use attributes::{check_name, to_attribute_value, to_payload};
pub use column::Column;
pub(crate) use column::Columns;
#[cfg(test)]
pub(crate) use foreign::MAX_COLUMNS;
pub(crate) use foreign::{
    ForeignItem, lock_client_columns, lock_client_error, too_many_columns_error,
};
pub(crate) use item::{Item, Observed, key_of};
