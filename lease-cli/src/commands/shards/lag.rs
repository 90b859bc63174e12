//! Asks Kinesis how far the checkpoint of each shard is behind the newest record.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use aws_sdk_kinesis::Client;
use futures_util::{StreamExt, stream};
use lease_core::store::LeaseRecord;
use lease_kinesis::extension::shard_row::ShardRow;
use lease_kinesis::{
    Application, KinesisSource, Position, ReadFrom, SequenceNumber, Source, SourceError, StreamId,
};

use crate::arguments::ShardsArguments;
use crate::exit::{Exit, Failure, sentence};
use crate::output::messages::say;

/// Returns the lag of each row: the time since the arrival of the oldest record after its checkpoint. `None` if it is
/// not known. A message on stderr has the reason, once.
pub(super) async fn lags(
    arguments: &ShardsArguments,
    rows: &[LeaseRecord],
) -> Result<Vec<Option<Duration>>, Failure> {
    let application: Application =
        arguments.application.parse().map_err(|error: lease_kinesis::InvalidText| {
            Failure::new(Exit::USAGE, error.to_string())
        })?;
    let shards: Vec<Option<ShardRow>> = rows
        .iter()
        .map(|row| {
            let read = ShardRow::from_record(&application, row.clone());
            read.unwrap_or_else(|error| {
                say(&format!("lag not known: {}", sentence(&error)));
                None
            })
        })
        .collect();
    let names: Vec<_> = shards.iter().map(|shard| stream_of(shard.as_ref()?, arguments)).collect();
    if names.iter().all(Option::is_none) {
        return Ok(vec![None; rows.len()]);
    }
    let Some(client) = client(arguments).await else {
        say("lag not known: no region is set: add --region, or set AWS_REGION");
        return Ok(vec![None; rows.len()]);
    };
    let sources: BTreeMap<&String, KinesisSource> = names
        .iter()
        .flatten()
        .map(|name| (name, KinesisSource::new(&client, name).with_request_timeout(TIMEOUT)))
        .collect();
    // Collected: a future with a closure that borrows cannot move to another thread.
    let asked: Vec<_> = shards
        .iter()
        .zip(&names)
        .map(|(shard, name)| {
            let source = name.as_ref().and_then(|name| sources.get(name));
            async move {
                match (shard, source) {
                    (Some(shard), Some(source)) => lag(source, shard).await.map(Some),
                    _ => Ok(None),
                }
            }
        })
        .collect();
    let answers: Vec<Result<Option<Duration>, SourceError>> =
        stream::iter(asked).buffered(AT_ONCE).collect().await;
    if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
        say(&format!("lag not known: {}", sentence(error)));
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or(None)).collect())
}

/// The stream of a shard: `None` if neither the row nor the command line names it.
fn stream_of(shard: &ShardRow, arguments: &ShardsArguments) -> Option<String> {
    // `account:name:created`.
    let of_row = |id: &StreamId| id.to_string().split(':').nth(1).map(str::to_owned);
    shard.stream.as_ref().and_then(of_row).or_else(|| arguments.stream.clone())
}

async fn client(arguments: &ShardsArguments) -> Option<Client> {
    let config = crate::aws::config(arguments.region.clone(), arguments.endpoint.clone()).await;
    config.region()?;
    Some(Client::new(&config))
}

/// Reads the first record after the checkpoint. A shard that was read to its end has no lag.
async fn lag(source: &KinesisSource, shard: &ShardRow) -> Result<Duration, SourceError> {
    let (from, read) = match &shard.checkpoint {
        Position::ShardEnd => return Ok(Duration::ZERO),
        Position::Record(number) => (ReadFrom::At(number.sequence.clone()), Some(&number.sequence)),
        Position::AtTimestamp(at) => (ReadFrom::Timestamp(*at), None),
        Position::TrimHorizon => (ReadFrom::TrimHorizon, None),
        Position::Latest => (ReadFrom::Latest, None),
    };
    let mut next = Some(source.iterator(&shard.shard, &from).await?);
    let mut behind = Duration::ZERO;
    for _fetch in 0..FETCHES {
        let Some(iterator) = next else { break };
        // The first record may be that of the checkpoint.
        let fetched = source.fetch(&iterator, 2).await?;
        let is_unread = |number: &SequenceNumber| read.is_none_or(|read| number > read);
        if let Some(record) = fetched.records.iter().find(|record| is_unread(&record.sequence)) {
            // Kinesis counts from the last record of its answer, which may be the newest.
            return Ok(record.arrived.map_or(fetched.behind, |at| age(at).max(fetched.behind)));
        }
        behind = fetched.behind;
        if behind.is_zero() {
            break;
        }
        next = fetched.next;
    }
    Ok(behind)
}

/// The time since `at`, in milliseconds since 1970.
fn age(at: u64) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "compared with an arrival, for a report")]
    let now = SystemTime::now();
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(at))
}

/// An answer may be empty although the shard has more records. The workers share the five reads per second of each
/// shard, so this leaves them most of a second.
const FETCHES: usize = 3;
/// How many shards are asked at the same time.
const AT_ONCE: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);
