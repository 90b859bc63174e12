//! Lists records of a table, for the commands that show them.

use std::sync::Arc;

use futures_util::TryStreamExt;
use lease_core::store::{LeaseRecord, LeaseTable};
use lease_core::{Attributes, Value};

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::store;

/// An attribute as text. `None` if it is missing, or neither a text nor a number.
pub(crate) fn text_of(attributes: &Attributes, name: &str) -> Option<String> {
    match attributes.get(name)? {
        Value::Text(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::List(items) => {
            Some(items.iter().filter_map(Value::as_text).collect::<Vec<_>>().join(","))
        }
        _ => None,
    }
}

/// Reads the records whose keys start with `prefix`, in order.
pub(super) async fn records(context: &Context, prefix: &str) -> Result<Vec<LeaseRecord>, Failure> {
    let table = table(context).await?;
    let mut records: Vec<LeaseRecord> = table.list(prefix).try_collect().await?;
    records.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(records)
}

async fn table(context: &Context) -> Result<Arc<dyn LeaseTable>, Failure> {
    let none = || Failure::new(Exit::CONFIGURATION, "this store keeps no records");
    store::open(context.url.as_deref()).await?.table().ok_or_else(none)
}
