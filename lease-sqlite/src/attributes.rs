//! The text format of attributes: one JSON object per record.
//!
//! A value is an array with `DynamoDB`'s name of its type and its content: `["S","text"]`, `["N","1.5"]`,
//! `["NULL"]`. SQLite's `json_patch` replaces arrays as a whole. Each value has exactly one text, so a
//! comparison of texts suffices.

use std::collections::BTreeMap;
use std::fmt::Write;

use lease_core::{Attributes, Change, Number, Value};
use serde_json::{Map, Value as Json, json};

/// `DynamoDB`'s limit. SQLite reads JSON of up to 1,000 levels, and each level of a value takes two levels of
/// JSON.
const MAX_LEVELS: usize = 32;

/// Returns `None` if a value is nested too deeply or has an unknown type.
pub(crate) fn write(attributes: &Attributes) -> Option<String> {
    let values = attributes.iter().map(|(name, value)| (name.as_str(), Some(value)));
    object(values)
}

/// In this merge patch, `null` removes an attribute.
pub(crate) fn write_patch(change: &Change) -> Option<String> {
    let removed = change.removed().map(|name| (name, None));
    object(change.assigned().map(|(name, value)| (name, Some(value))).chain(removed))
}

/// `null` is an absent attribute.
pub(crate) fn write_expected(change: &Change) -> Option<String> {
    object(change.expected())
}

/// Returns `None` if the attributes are unreadable.
pub(crate) fn read(text: &str) -> Option<Attributes> {
    let Json::Object(values) = serde_json::from_str(text).ok()? else { return None };
    values.iter().map(|(name, value)| Some((name.clone(), from_json(value)?))).collect()
}

/// Returns `None` if a text is unreadable.
pub(crate) fn meets(text: &str, expected: &str) -> Option<bool> {
    let Json::Object(values) = serde_json::from_str(text).ok()? else { return None };
    let Json::Object(expected) = serde_json::from_str(expected).ok()? else { return None };
    Some(expected.iter().all(|(name, expected)| {
        values.get(name).map_or_else(|| expected.is_null(), |value| value == expected)
    }))
}

fn object<'a>(values: impl Iterator<Item = (&'a str, Option<&'a Value>)>) -> Option<String> {
    let entry = |(name, value): (&str, Option<&Value>)| {
        let json = match value {
            Some(value) if levels(value) <= MAX_LEVELS => to_json(value)?,
            Some(_too_deep) => return None,
            None => Json::Null,
        };
        Some((name.to_owned(), json))
    };
    let object = values.map(entry).collect::<Option<Map<_, _>>>()?;
    Some(Json::Object(object).to_string())
}

fn levels(value: &Value) -> usize {
    let inside = match value {
        Value::List(items) => items.iter().map(levels).max(),
        Value::Map(entries) => entries.values().map(levels).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or(0)
}

fn to_json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Text(text) => json!(["S", text]),
        Value::Number(number) => json!(["N", number.as_str()]),
        Value::Bool(flag) => json!(["BOOL", flag]),
        Value::Bytes(bytes) => json!(["B", hexadecimal(bytes)]),
        Value::Null => json!(["NULL"]),
        Value::List(items) => {
            json!(["L", items.iter().map(to_json).collect::<Option<Vec<_>>>()?])
        }
        Value::Map(entries) => {
            let entry = |(name, value): (&String, &Value)| Some((name.clone(), to_json(value)?));
            json!(["M", entries.iter().map(entry).collect::<Option<Map<_, _>>>()?])
        }
        Value::TextSet(texts) => json!(["SS", texts]),
        Value::NumberSet(numbers) => {
            json!(["NS", numbers.iter().map(Number::as_str).collect::<Vec<_>>()])
        }
        Value::BytesSet(set) => {
            json!(["BS", set.iter().map(|bytes| hexadecimal(bytes)).collect::<Vec<_>>()])
        }
        // A type that a later version of lease-core has added.
        _ => return None,
    })
}

fn from_json(json: &Json) -> Option<Value> {
    let (kind, inner) = match json.as_array()?.as_slice() {
        [kind] => (kind.as_str()?, &Json::Null),
        [kind, inner] => (kind.as_str()?, inner),
        _ => return None,
    };
    let texts = || inner.as_array()?.iter().map(Json::as_str).collect::<Option<Vec<_>>>();
    Some(match kind {
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
