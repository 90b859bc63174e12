//! Attributes of a row as DynamoDB's types, and back.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::{InvalidInput, Number, Value};

pub(super) fn to_dynamodb(value: &Value) -> Result<AttributeValue, InvalidInput> {
    let empty_set = || InvalidInput::new("an empty set: DynamoDB keeps none");
    Ok(match value {
        Value::Text(text) => AttributeValue::S(text.clone()),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::Bool(flag) => AttributeValue::Bool(*flag),
        Value::Bytes(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Null => AttributeValue::Null(true),
        Value::List(values) => {
            AttributeValue::L(values.iter().map(to_dynamodb).collect::<Result<_, _>>()?)
        }
        Value::Map(values) => {
            let values = values.iter();
            let values = values.map(|(name, value)| Ok((name.clone(), to_dynamodb(value)?)));
            AttributeValue::M(values.collect::<Result<_, InvalidInput>>()?)
        }
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
            let text = format!("{other:?}, for which this version of lease-kinesis knows no type");
            return Err(InvalidInput::new(text));
        }
    })
}

/// `None` for what this version does not know: another program's, and left as it is.
pub(super) fn from_dynamodb(value: AttributeValue) -> Option<Value> {
    let number = |text: String| text.parse::<Number>().ok();
    Some(match value {
        AttributeValue::S(text) => Value::Text(text),
        AttributeValue::N(text) => Value::Number(number(text)?),
        AttributeValue::Bool(flag) => Value::Bool(flag),
        AttributeValue::B(blob) => Value::Bytes(blob.into_inner()),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(values) => {
            Value::List(values.into_iter().map(from_dynamodb).collect::<Option<_>>()?)
        }
        AttributeValue::M(values) => {
            let values = values.into_iter();
            let values = values.map(|(name, value)| Some((name, from_dynamodb(value)?)));
            Value::Map(values.collect::<Option<_>>()?)
        }
        AttributeValue::Ss(texts) => Value::TextSet(texts.into_iter().collect()),
        AttributeValue::Ns(texts) => {
            Value::NumberSet(texts.into_iter().map(number).collect::<Option<_>>()?)
        }
        AttributeValue::Bs(blobs) => {
            Value::BytesSet(blobs.into_iter().map(Blob::into_inner).collect())
        }
        _ => return None,
    })
}
