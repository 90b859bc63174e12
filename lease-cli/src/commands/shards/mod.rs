//! `lease shards`: lists what lease-kinesis keeps in its records, and how far each shard is behind.
//!
//! `records` reads the rows. `lag` asks Kinesis for the lag of the shards.

#[cfg(feature = "kinesis")]
mod lag;
mod records;

use std::time::Duration;

use lease_core::store::LeaseRecord;

use self::records::records;
pub(crate) use self::records::text_of;
use crate::arguments::ShardsArguments;
use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;

/// Lists the shards of an application, with their workers, checkpoints and lags.
pub(crate) async fn shards(
    context: &Context,
    arguments: &ShardsArguments,
) -> Result<Exit, Failure> {
    let prefix = prefix_of(arguments);
    let rows = records(context, &prefix).await?;
    let lags = lags(arguments, &rows).await?;
    let shards: Vec<_> = rows.iter().zip(lags).map(|(row, lag)| shard(row, &prefix, lag)).collect();
    context.output.list(&shards)?;
    Ok(Exit::SUCCESS)
}

/// What the keys of the rows of an application start with.
pub(crate) fn prefix_of(arguments: &ShardsArguments) -> String {
    format!("{}/shards/", arguments.application)
}

/// Returns the lag of each row, if it is known.
#[cfg(feature = "kinesis")]
pub(crate) async fn lags(
    arguments: &ShardsArguments,
    rows: &[LeaseRecord],
) -> Result<Vec<Option<Duration>>, Failure> {
    lag::lags(arguments, rows).await
}

/// Only Kinesis knows the lag.
#[cfg(not(feature = "kinesis"))]
pub(crate) async fn lags(
    _arguments: &ShardsArguments,
    rows: &[LeaseRecord],
) -> Result<Vec<Option<Duration>>, Failure> {
    std::future::ready(Ok(vec![None; rows.len()])).await
}

fn shard(row: &LeaseRecord, prefix: &str, lag: Option<Duration>) -> Record {
    let text = |name: &str| text_of(&row.attributes, name);
    Record::new()
        .with("shard", row.key.as_str().strip_prefix(prefix))
        .with("worker", row.holder.as_ref().map(|holder| holder.lessee.as_str()))
        .with("checkpoint", text("checkpoint"))
        .with("parents", text("parentShardId"))
        .with_time("lag", lag)
}
