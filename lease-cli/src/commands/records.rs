//! `lease shards` and `lease jobs`: list what lease-kinesis and lease-scheduler keep in their records.

use std::sync::Arc;

use futures_util::TryStreamExt;
use lease_core::store::{LeaseRecord, LeaseTable};

use crate::commands::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Record, attributes};
use crate::store;

/// Lists the shards of an application: key, holder, and what the row keeps.
pub(crate) async fn shards(context: &Context, application: &str) -> Result<Exit, Failure> {
    list(context, &format!("{application}/shards/")).await
}

/// Lists the jobs of a scheduler, with what their records keep.
pub(crate) async fn jobs(context: &Context, prefix: &str) -> Result<Exit, Failure> {
    list(context, prefix).await
}

async fn list(context: &Context, prefix: &str) -> Result<Exit, Failure> {
    let table = table(context).await?;
    let mut records: Vec<LeaseRecord> = table.list(prefix).try_collect().await?;
    records.sort_by(|one, other| one.key.cmp(&other.key));
    let records: Vec<_> = records.iter().map(record).collect();
    context.output.list(&records)?;
    Ok(Exit::SUCCESS)
}

fn record(record: &LeaseRecord) -> Record {
    let holder = record.holder.as_ref().map(|holder| holder.lessee.as_str());
    let attributes = attributes::json(&record.attributes);
    Record::new()
        .with("key", record.key.as_str())
        .with("holder", holder)
        .with("attributes", attributes)
}

async fn table(context: &Context) -> Result<Arc<dyn LeaseTable>, Failure> {
    let none = || Failure::new(Exit::CONFIGURATION, "this store keeps no records");
    store::open(context.url.as_deref()).await?.table().ok_or_else(none)
}
