use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_aws::table_client::{ColumnName, RawItem};
use lease_core::store::{Nonce, Timestamp};

use super::*;
use crate::items::MAX_COLUMNS;

fn settings() -> Settings {
    Settings { existing_only: true, lock_client_items: true, ..Settings::new("leases".to_owned()) }
}

/// DynamoDB's limit counts only operators and functions.
fn operators(condition: &str) -> usize {
    let is_word =
        |word: &&str| matches!(*word, "AND" | "OR" | "NOT" | "=" | "<>" | "<" | "<=" | ">=");
    let functions = condition.matches("attribute_").count();
    functions + condition.split([' ', '(', ')']).filter(is_word).count()
}

#[test]
fn longest_condition_is_within_dynamodbs_limits() {
    let settings = settings();
    let raw: RawItem = (0..MAX_COLUMNS)
        .map(|number| (format!("column {number}"), AttributeValue::S("x".to_owned())))
        .collect();
    let foreign = ForeignItem::of(&raw, &settings.columns);
    let observed =
        Observed { lessee: None, token: None, beat: None, foreign: Some(foreign.digest) };
    let stale = StaleItem { observed, foreign: Some(foreign) };
    let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
    let claim = Claim::new(key, lessee, Nonce::random(), Duration::from_secs(10));
    let attributes: BTreeMap<_, _> = (0..100).map(|number| (format!("own {number}"), 1)).collect();
    let payload = attributes
        .into_iter()
        .map(|(name, number)| (name, AttributeValue::N(number.to_string())))
        .collect();
    let time = Timestamp::from_seconds(1_800_000_000);
    let now = ServerNow { lowest: time, highest: time };

    let write = obtain(&claim, payload, &settings, Some(now), Some(&stale), Purge::AsMarked);

    let condition =
        write.render(|placeholder| Some(ColumnName::Renamed(placeholder.to_owned()))).condition;
    let (length, operators) = (condition.len(), operators(&condition));
    assert!(length <= 4096 && operators <= 300, "{length} bytes, {operators} operators");
    assert!(operators > 2 * MAX_COLUMNS, "the condition should name all columns: {condition}");
}
