//! The text format of attributes: `DynamoDB`'s JSON, which people can read and query.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use lease_core::{Attributes, Number, Value};
use serde_json::{Map, Value as Json, json};

/// Writes attributes as one JSON object: `{"colour": {"S": "red"}, "count": {"N": "1.5"}}`. Returns `None`
/// for a value that is too deep or has an unknown type.
pub(crate) fn write<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a Value)>,
) -> Option<String> {
    let entry = |(name, value): (&str, &Value)| {
        let is_flat = levels(value) <= MAX_LEVELS;
        Some((escaped(name), is_flat.then(|| to_json(value))??))
    };
    let entries = attributes.into_iter().map(entry).collect::<Option<Map<_, _>>>()?;
    Some(Json::Object(entries).to_string())
}

/// Returns `None` if [`write`] cannot have written the text.
pub(crate) fn read(text: &str) -> Option<Attributes> {
    let json: Json = serde_json::from_str(text).ok()?;
    json.as_object()?.iter().map(|(name, value)| Some((plain(name)?, from_json(value)?))).collect()
}

/// PostgreSQL refuses the character NUL.
pub(crate) fn escaped(text: &str) -> String {
    text.replace(ESCAPE, &format!("{ESCAPE}{ESCAPE}")).replace('\0', &format!("{ESCAPE}0"))
}

/// `DynamoDB` has the same limit. `serde_json` reads about twice this number of levels.
pub(crate) const MAX_LEVELS: usize = 32;

/// The control character "data link escape", which precedes an escaped character.
const ESCAPE: char = '\u{10}';

fn plain(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            ESCAPE => match characters.next()? {
                ESCAPE => ESCAPE,
                '0' => '\0',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
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
        Value::Text(text) => json!({ "S": escaped(text) }),
        Value::Number(number) => json!({ "N": number.as_str() }),
        Value::Bool(flag) => json!({ "BOOL": flag }),
        Value::Bytes(bytes) => json!({ "B": hexadecimal(bytes) }),
        Value::Null => json!({ "NULL": true }),
        Value::List(items) => {
            json!({ "L": items.iter().map(to_json).collect::<Option<Vec<_>>>()? })
        }
        Value::Map(entries) => {
            let entry = |(name, value): (&String, &Value)| Some((escaped(name), to_json(value)?));
            json!({ "M": entries.iter().map(entry).collect::<Option<Map<_, _>>>()? })
        }
        Value::TextSet(texts) => {
            json!({ "SS": texts.iter().map(|text| escaped(text)).collect::<Vec<_>>() })
        }
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
    let mut entries = json.as_object()?.iter();
    let ((kind, inner), None) = (entries.next()?, entries.next()) else { return None };
    let texts = || inner.as_array()?.iter().map(Json::as_str).collect::<Option<Vec<_>>>();
    Some(match kind.as_str() {
        "S" => Value::Text(plain(inner.as_str()?)?),
        "N" => Value::Number(inner.as_str()?.parse().ok()?),
        "BOOL" => Value::Bool(inner.as_bool()?),
        "B" => Value::Bytes(bytes(inner.as_str()?)?),
        "NULL" => Value::Null,
        "L" => Value::List(inner.as_array()?.iter().map(from_json).collect::<Option<_>>()?),
        "M" => {
            let entry = |(name, value): (&String, &Json)| Some((plain(name)?, from_json(value)?));
            Value::Map(inner.as_object()?.iter().map(entry).collect::<Option<BTreeMap<_, _>>>()?)
        }
        "SS" => Value::TextSet(texts()?.into_iter().map(plain).collect::<Option<_>>()?),
        "NS" => {
            let numbers = texts()?.into_iter().map(|number| number.parse().ok());
            Value::NumberSet(numbers.collect::<Option<BTreeSet<_>>>()?)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![any::<String>(), "[\u{0}\u{10}0a]{0,6}"];
        let leaf = prop_oneof![
            text.prop_map(Value::Text),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::Bool),
            any::<Vec<u8>>().prop_map(Value::Bytes),
            Just(Value::Null),
            any::<BTreeSet<String>>().prop_map(Value::TextSet),
            any::<BTreeSet<Vec<u8>>>().prop_map(Value::BytesSet),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(Value::Map),
            ]
        })
    }

    fn written(attributes: &Attributes) -> Option<String> {
        write(attributes.iter().map(|(name, value)| (name.as_str(), value)))
    }

    proptest! {
        #[test]
        fn attributes_are_read_back(
            attributes in prop::collection::btree_map(any::<String>(), value(), 0..4)
        ) {
            let text = written(&attributes).unwrap();

            prop_assert!(!text.contains("\\u0000"), "PostgreSQL refuses {text}");
            prop_assert_eq!(read(&text), Some(attributes));
        }

        #[test]
        fn other_text_is_refused_without_a_panic(text in any::<String>()) {
            drop(read(&text));
        }

        #[test]
        fn other_json_is_refused_without_a_panic(
            text in r#"\{"a":\{"(S|N|BOOL|B|NULL|L|M|SS|NS|BS|X)":(1|"[01g\x{10}]{0,3}"|\[1\]|\["z"\]|\{\}|null)\}\}"#
        ) {
            drop(read(&text));
        }
    }

    #[test]
    fn deep_values_are_refused() {
        let nested = |levels| (0..levels).fold(Value::Null, |value, _| Value::List(vec![value]));
        let of = |value| Attributes::from([("deep".to_owned(), value)]);

        assert!(written(&of(nested(MAX_LEVELS))).and_then(|text| read(&text)).is_some());
        assert_eq!(written(&of(nested(MAX_LEVELS + 1))), None);
    }
}
