//! Attributes of a record as JSON.

use lease_core::{Attributes, Value};
use serde_json::{Map, Value as Json};

/// Returns attributes as a JSON object.
pub(crate) fn json(attributes: &Attributes) -> Json {
    object(attributes.iter())
}

fn object<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>) -> Json {
    Json::Object(fields.map(|(name, value)| (name.clone(), of(value))).collect::<Map<_, _>>())
}

fn of(value: &Value) -> Json {
    match value {
        Value::Text(text) => text.as_str().into(),
        // A number that JSON cannot keep exactly stays a text.
        Value::Number(number) => {
            serde_json::from_str(&number.to_string()).unwrap_or_else(|_| number.to_string().into())
        }
        Value::Bool(value) => (*value).into(),
        Value::Bytes(bytes) => {
            let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            digits.concat().into()
        }
        Value::List(items) => items.iter().map(of).collect(),
        Value::Map(map) => object(map.iter()),
        other => format!("{other:?}").into(),
    }
}
