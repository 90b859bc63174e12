//! `lease ls`: lists held keys, or all records.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use lease_core::store::{HeldKey, LeaseRecord, LockStore};
use lease_core::{FencingToken, LeaseKey};

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::output::attributes;
use crate::store;

pub(crate) async fn ls(context: &Context, prefix: &str, long: bool) -> Result<Exit, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let records: Vec<Record> = match store.table() {
        Some(table) if long => {
            let records: Vec<LeaseRecord> = table.list(prefix).try_collect().await?;
            in_order(records, |record| record.key.clone())
                .map(|record| long_record(&record))
                .collect()
        }
        None if long => {
            let text = "this store keeps no records: leave out --long";
            return Err(Failure::new(Exit::CONFIGURATION, text));
        }
        _ => {
            let held: Vec<HeldKey> = store.scan(prefix).try_collect().await?;
            in_order(held, |held| held.key.clone()).map(|held| short_record(&held)).collect()
        }
    };
    context.output.list(&records)?;
    Ok(Exit::SUCCESS)
}

/// Sorts by key. A store may list a key twice.
fn in_order<T>(items: Vec<T>, key: impl Fn(&T) -> LeaseKey) -> impl Iterator<Item = T> {
    let by_key: BTreeMap<_, _> = items.into_iter().map(|item| (key(&item), item)).collect();
    by_key.into_values()
}

fn short_record(held: &HeldKey) -> Record {
    Record::new().with("key", held.key.as_str()).with_holder(Some(&held.holder))
}

fn long_record(record: &LeaseRecord) -> Record {
    let attributes = attributes::json(&record.attributes);
    let text = if record.attributes.is_empty() { "–".to_owned() } else { attributes.to_string() };
    Record::new()
        .with("key", record.key.as_str())
        .with_holder(record.holder.as_ref())
        .with("last_token", record.token.map(FencingToken::get))
        .with_text("attributes", attributes, text)
}
