//! The text format of attribute values: `DynamoDB`'s JSON, which people can read.

use std::collections::BTreeMap;
use std::fmt::Write;

use lease_core::{Attributes, Number, Value};
use redis::Value as Reply;
use serde_json::{Map, Value as Json, json};

use crate::scripts::text;

/// Writes a value as `{"S":"text"}`, `{"N":"1.5"}`, `{"L":[…]}` and so on, with bytes as hexadecimal digits.
/// Returns `None` for a value that is too deep or has an unknown type.
pub(crate) fn write(value: &Value) -> Option<String> {
    (levels(value) <= MAX_LEVELS).then(|| to_json(value).map(|json| json.to_string()))?
}

/// `DynamoDB` has the same limit. A deeper value could not be read back.
pub(crate) const MAX_LEVELS: usize = 32;

fn levels(value: &Value) -> usize {
    let inside = match value {
        Value::List(items) => items.iter().map(levels).max(),
        Value::Map(entries) => entries.values().map(levels).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or(0)
}

/// The inner `None` means that the record does not exist. The outer `None` means that the reply is
/// unreadable. Ignores fields that are no attributes.
#[expect(clippy::option_option, reason = "unreadable and absent are different results")]
pub(crate) fn read_attributes(reply: &Reply) -> Option<Option<Attributes>> {
    let fields: Vec<_> = match reply {
        Reply::Array(fields) => {
            fields.as_chunks::<2>().0.iter().map(|[name, value]| (name, value)).collect()
        }
        Reply::Map(fields) => fields.iter().map(|(name, value)| (name, value)).collect(),
        _ => return None,
    };
    let mut attributes = Attributes::new();
    let mut exists = false;
    for (name, value) in fields {
        match text(name)?.as_str() {
            "." => exists = true,
            name => {
                let Some(name) = name.strip_prefix('=') else { continue };
                let json = serde_json::from_str(&text(value)?).ok()?;
                attributes.insert(name.to_owned(), from_json(&json)?);
            }
        }
    }
    Some(exists.then_some(attributes))
}

fn to_json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Text(text) => json!({ "S": text }),
        Value::Number(number) => json!({ "N": number.as_str() }),
        Value::Bool(flag) => json!({ "BOOL": flag }),
        Value::Bytes(bytes) => json!({ "B": hexadecimal(bytes) }),
        Value::Null => json!({ "NULL": true }),
        Value::List(items) => {
            json!({ "L": items.iter().map(to_json).collect::<Option<Vec<_>>>()? })
        }
        Value::Map(entries) => {
            let entry = |(name, value): (&String, &Value)| Some((name.clone(), to_json(value)?));
            json!({ "M": entries.iter().map(entry).collect::<Option<Map<_, _>>>()? })
        }
        Value::TextSet(texts) => json!({ "SS": texts }),
        Value::NumberSet(numbers) => {
            json!({ "NS": numbers.iter().map(Number::as_str).collect::<Vec<_>>() })
        }
        Value::BytesSet(set) => {
            json!({ "BS": set.iter().map(|bytes| hexadecimal(bytes)).collect::<Vec<_>>() })
        }
        // A type that a later version of lease-core has added.
        _ => return None,
    })
}

fn from_json(json: &Json) -> Option<Value> {
    let (kind, inner) = json.as_object()?.iter().next()?;
    let texts = || inner.as_array()?.iter().map(Json::as_str).collect::<Option<Vec<_>>>();
    Some(match kind.as_str() {
        "S" => Value::Text(inner.as_str()?.to_owned()),
        "N" => Value::Number(inner.as_str()?.parse().ok()?),
        "BOOL" => Value::Bool(inner.as_bool()?),
        "B" => Value::Bytes(bytes(inner.as_str()?)?),
        "NULL" => Value::Null,
        "L" => Value::List(inner.as_array()?.iter().map(from_json).collect::<Option<_>>()?),
        "M" => {
            let entry = |(name, value): (&String, &Json)| Some((name.clone(), from_json(value)?));
            Value::Map(inner.as_object()?.iter().map(entry).collect::<Option<BTreeMap<_, _>>>()?)
        }
        "SS" => Value::TextSet(texts()?.into_iter().map(str::to_owned).collect()),
        "NS" => {
            let numbers = texts()?.into_iter().map(|number| number.parse().ok());
            Value::NumberSet(numbers.collect::<Option<_>>()?)
        }
        "BS" => Value::BytesSet(texts()?.into_iter().map(bytes).collect::<Option<_>>()?),
        _ => return None,
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(pair).collect()
}
