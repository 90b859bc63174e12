//! Converts the user's attributes into DynamoDB's types.

use aws_sdk_dynamodb::types::AttributeValue;
use lease_aws::table_client::{MAX_ITEM_BYTES, Payload, attribute_bytes, store_error, to_dynamodb};
use lease_core::{LeaseKey, StoreError, StoreErrorKind, Value};

use super::column::Columns;

/// Fails if DynamoDB cannot store an attribute, if the attributes do not fit into an item, or if an
/// attribute has the name of a lease column.
pub(crate) fn to_payload<'a>(
    key: &LeaseKey,
    attributes: impl Iterator<Item = (&'a str, &'a Value)>,
    columns: &Columns,
) -> Result<Payload, StoreError> {
    let mut bytes = key.as_str().len();
    let mut payload = Payload::new();
    for (name, value) in attributes {
        check_name(name, columns)?;
        bytes += attribute_bytes(name, value);
        payload.push((name.to_owned(), to_attribute_value(name, value)?));
    }
    if bytes > MAX_ITEM_BYTES {
        return Err(store_error(
            StoreErrorKind::Refused,
            format!(
                "attributes of {bytes} bytes do not fit into item {:?}: DynamoDB stores items of \
                 up to 400 KB",
                key.as_str()
            ),
        ));
    }
    Ok(payload)
}

pub(crate) fn check_name(name: &str, columns: &Columns) -> Result<(), StoreError> {
    if name.is_empty() || columns.contains(name) {
        return Err(store_error(
            StoreErrorKind::Refused,
            format!("attribute {name:?} is a column of the lease itself: choose another name"),
        ));
    }
    Ok(())
}

pub(crate) fn to_attribute_value(name: &str, value: &Value) -> Result<AttributeValue, StoreError> {
    to_dynamodb(value).map_err(|error| {
        store_error(StoreErrorKind::Refused, format!("attribute {name:?} is {error}"))
    })
}
