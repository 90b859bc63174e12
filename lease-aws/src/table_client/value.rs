//! Converts attributes into DynamoDB's types and back, and computes their sizes.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::{InvalidInput, Number, Value};

/// The maximum size of an item, in bytes of names and values:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>
pub const MAX_ITEM_BYTES: usize = 400 * 1024;

/// Converts an attribute into DynamoDB's type.
///
/// # Errors
///
/// If the value is an empty set, or has a type that this version does not know.
pub fn to_dynamodb(value: &Value) -> Result<AttributeValue, InvalidInput> {
    let empty_set = || InvalidInput::new("an empty set, which DynamoDB does not store");
    Ok(match value {
        Value::Text(text) => AttributeValue::S(text.clone()),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::Bool(flag) => AttributeValue::Bool(*flag),
        Value::Bytes(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Null => AttributeValue::Null(true),
        Value::List(values) => {
            AttributeValue::L(values.iter().map(to_dynamodb).collect::<Result<_, _>>()?)
        }
        Value::Map(values) => AttributeValue::M(
            values
                .iter()
                .map(|(name, value)| Ok((name.clone(), to_dynamodb(value)?)))
                .collect::<Result<_, InvalidInput>>()?,
        ),
        Value::TextSet(texts) if texts.is_empty() => return Err(empty_set()),
        Value::NumberSet(numbers) if numbers.is_empty() => return Err(empty_set()),
        Value::BytesSet(blobs) if blobs.is_empty() => return Err(empty_set()),
        Value::TextSet(texts) => AttributeValue::Ss(texts.iter().cloned().collect()),
        Value::NumberSet(numbers) => {
            AttributeValue::Ns(numbers.iter().map(ToString::to_string).collect())
        }
        Value::BytesSet(blobs) => {
            AttributeValue::Bs(blobs.iter().map(|bytes| Blob::new(bytes.clone())).collect())
        }
        other => {
            return Err(InvalidInput::new(format!(
                "{other:?}, of a type that this version of lease-aws does not know"
            )));
        }
    })
}

/// Converts a stored attribute.
///
/// # Errors
///
/// If a number cannot be parsed, or if this version of the crate does not know the type.
pub fn from_dynamodb(value: AttributeValue) -> Result<Value, InvalidInput> {
    let number = |text: String| text.parse::<Number>();
    Ok(match value {
        AttributeValue::S(text) => Value::Text(text),
        AttributeValue::N(text) => Value::Number(number(text)?),
        AttributeValue::Bool(flag) => Value::Bool(flag),
        AttributeValue::B(blob) => Value::Bytes(blob.into_inner()),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(values) => {
            Value::List(values.into_iter().map(from_dynamodb).collect::<Result<_, _>>()?)
        }
        AttributeValue::M(values) => Value::Map(
            values
                .into_iter()
                .map(|(name, value)| Ok((name, from_dynamodb(value)?)))
                .collect::<Result<_, InvalidInput>>()?,
        ),
        AttributeValue::Ss(texts) => Value::TextSet(texts.into_iter().collect()),
        AttributeValue::Ns(texts) => {
            Value::NumberSet(texts.into_iter().map(number).collect::<Result<_, _>>()?)
        }
        AttributeValue::Bs(blobs) => {
            Value::BytesSet(blobs.into_iter().map(Blob::into_inner).collect())
        }
        _ => {
            return Err(InvalidInput::new(
                "of a type that this version of lease-aws does not know",
            ));
        }
    })
}

/// Returns the size in bytes of one attribute:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
pub fn attribute_bytes(name: &str, value: &Value) -> usize {
    name.len() + value_bytes(value)
}

fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Number(number) => number_bytes(number),
        Value::Bytes(bytes) => bytes.len(),
        // DynamoDB counts three bytes for a list or a map, and one byte for each element.
        Value::List(values) => 3 + values.iter().map(|v| 1 + value_bytes(v)).sum::<usize>(),
        Value::Map(values) => {
            3 + values.iter().map(|(name, value)| 1 + attribute_bytes(name, value)).sum::<usize>()
        }
        Value::TextSet(texts) => texts.iter().map(String::len).sum(),
        Value::NumberSet(numbers) => numbers.iter().map(number_bytes).sum(),
        Value::BytesSet(blobs) => blobs.iter().map(Vec::len).sum(),
        // Booleans, NULL, and types of later versions.
        _ => 1,
    }
}

/// DynamoDB documents about one byte per two digits, plus one byte.
fn number_bytes(number: &Number) -> usize {
    let digits = number.as_str().bytes().filter(u8::is_ascii_digit).count();
    digits.div_ceil(2) + 1
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_type_survives_both_conversions() {
        let number: Number = "-12345678901234567890123456789012345678".parse().unwrap();
        let all = BTreeMap::from([
            ("text".to_owned(), Value::from("é")),
            ("empty".to_owned(), Value::from("")),
            ("number".to_owned(), Value::Number(number.clone())),
            ("bool".to_owned(), Value::Bool(false)),
            ("bytes".to_owned(), Value::Bytes(vec![0, 255])),
            ("null".to_owned(), Value::Null),
            ("list".to_owned(), Value::List(vec![Value::Null])),
            ("texts".to_owned(), Value::TextSet(BTreeSet::from(["a".to_owned()]))),
            ("numbers".to_owned(), Value::NumberSet(BTreeSet::from([number]))),
            ("blobs".to_owned(), Value::BytesSet(BTreeSet::from([vec![1]]))),
        ]);
        let value = Value::Map(all);

        assert_eq!(from_dynamodb(to_dynamodb(&value).unwrap()), Ok(value));
    }

    #[test]
    fn empty_set_is_refused() {
        assert!(to_dynamodb(&Value::TextSet(BTreeSet::new())).is_err());
        assert!(to_dynamodb(&Value::List(vec![Value::BytesSet(BTreeSet::new())])).is_err());
    }

    #[test]
    fn sizes_match_the_documentation() {
        assert_eq!(attribute_bytes("name", &Value::from("12345")), 9);
        assert_eq!(attribute_bytes("n", &Value::List(vec![Value::Null, Value::Bool(true)])), 8);
    }
}
