//! The entry point for fuzzers, which parses arbitrary items.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value as Json;

use lease_aws::table_client::{RawItem, from_dynamodb, to_dynamodb};

use crate::items::{Columns, Item, key_of};

/// Parses `bytes` as an item in DynamoDB's JSON.
pub fn item(bytes: &[u8]) {
    let Ok(Json::Object(fields)) = serde_json::from_slice(bytes) else { return };
    let raw: Option<RawItem> =
        fields.iter().map(|(name, value)| Some((name.clone(), attribute(value)?))).collect();
    let Some(raw) = raw else { return };
    let columns = Columns::default();
    drop(key_of(&raw, &columns));
    for value in raw.values() {
        assert_round_trip(value);
    }
    drop(Item::read("fuzzed", raw, &columns));
}

fn assert_round_trip(value: &AttributeValue) {
    let Ok(read) = from_dynamodb(value.clone()) else { return };
    if let Ok(written) = to_dynamodb(&read) {
        assert_eq!(from_dynamodb(written), Ok(read));
    }
}

fn attribute(json: &Json) -> Option<AttributeValue> {
    let (kind, inner) = json.as_object()?.iter().next()?;
    let text = |json: &Json| json.as_str().map(str::to_owned);
    let texts = || inner.as_array()?.iter().map(text).collect::<Option<Vec<_>>>();
    let blob = |text: String| Blob::new(text.into_bytes());
    Some(match kind.as_str() {
        "S" => AttributeValue::S(text(inner)?),
        "N" => AttributeValue::N(text(inner)?),
        "B" => AttributeValue::B(blob(text(inner)?)),
        "BOOL" => AttributeValue::Bool(inner.as_bool()?),
        "NULL" => AttributeValue::Null(inner.as_bool()?),
        "SS" => AttributeValue::Ss(texts()?),
        "NS" => AttributeValue::Ns(texts()?),
        "BS" => AttributeValue::Bs(texts()?.into_iter().map(blob).collect()),
        "L" => AttributeValue::L(inner.as_array()?.iter().map(attribute).collect::<Option<_>>()?),
        "M" => {
            let entry = |(name, value): (&String, &Json)| Some((name.clone(), attribute(value)?));
            AttributeValue::M(inner.as_object()?.iter().map(entry).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
