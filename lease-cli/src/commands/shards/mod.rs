//! `lease shards`: lists what lease-kinesis keeps in its records, and how far each shard is behind.
//!
//! `records` reads the rows. `lag` asks Kinesis for the lag of the shards.

#[cfg(feature = "kinesis")]
mod lag;
mod records;

use std::time::Duration;

use lease_core::store::LeaseRecord;

use self::records::{records, text_of};
use crate::arguments::ShardsArguments;
use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;

/// Lists the shards of an application, with their workers, checkpoints and lags.
pub(crate) async fn shards(
    context: &Context,
    arguments: &ShardsArguments,
) -> Result<Exit, Failure> {
    let prefix = format!("{}/shards/", arguments.application);
    let rows = records(context, &prefix).await?;
    #[cfg(feature = "kinesis")]
    let lags = lag::lags(arguments, &rows).await?;
    // Only Kinesis knows the lag.
    #[cfg(not(feature = "kinesis"))]
    let lags = vec![None; rows.len()];
    let shards: Vec<_> = rows.iter().zip(lags).map(|(row, lag)| shard(row, &prefix, lag)).collect();
    context.output.list(&shards)?;
    Ok(Exit::SUCCESS)
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
