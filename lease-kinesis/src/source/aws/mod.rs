//! [`KinesisSource`]: a stream in AWS, through aws-sdk-kinesis.
//!
//! `requests` sends requests with a time limit, `error` classifies their failures, and `convert`
//! converts their answers. `consumer` and `push` are enhanced fan-out.

mod consumer;
mod convert;
mod error;
mod push;
mod requests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::get_shard_iterator::GetShardIteratorError;
use aws_sdk_kinesis::operation::list_shards::{ListShardsError, ListShardsOutput};
use aws_sdk_kinesis::operation::subscribe_to_shard::SubscribeToShardError;
use aws_sdk_kinesis::types::StartingPosition;
use futures_util::stream::BoxStream;

use self::consumer::Consumer;
use self::push::Subscription;
use self::requests::{Requests, StreamName, is};
use super::{Fetched, ReadFrom, ShardIterator, Source, SourceError, SourceErrorKind};
use crate::names::StreamId;
use crate::shard::{Shard, ShardId};

/// Reads a stream of Kinesis Data Streams.
///
/// The client needs a region, credentials and an HTTP client. This crate does not enable the SDK's own HTTP
/// client. The source disables the SDK's retries, because the reader of each shard retries.
///
/// Required permissions: `kinesis:ListShards`, `GetShardIterator` and `GetRecords`. [`id`](Self::id) and
/// enhanced fan-out need `DescribeStreamSummary`. Enhanced fan-out needs `SubscribeToShard`,
/// `DescribeStreamConsumer` and `RegisterStreamConsumer`.
///
/// # Examples
///
/// ```no_run
/// use lease_kinesis::KinesisSource;
///
/// # fn run(client: aws_sdk_kinesis::Client) {
/// let orders = KinesisSource::new(&client, "orders");
/// let pushed = KinesisSource::new(&client, "arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
///     .with_consumer("billing");
/// # let _ = (orders, pushed);
/// # }
/// ```
#[derive(Clone)]
pub struct KinesisSource {
    requests: Requests,
    consumer: Option<Arc<Consumer>>,
}

impl KinesisSource {
    /// Reads `stream`, given as its name or its ARN. A stream of another account needs the ARN.
    pub fn new(client: &Client, stream: impl Into<String>) -> Self {
        let stream = StreamName::new(stream.into());
        Self { requests: Requests::new(client, stream, REQUEST_TIMEOUT), consumer: None }
    }

    /// Sets the consumer for enhanced fan-out, by name or ARN. All workers of an application share one
    /// consumer. The first subscription registers an unknown name. A consumer costs money until an operator
    /// calls `DeregisterStreamConsumer`.
    #[must_use]
    pub fn with_consumer(mut self, consumer: impl Into<String>) -> Self {
        self.consumer = Some(Arc::new(Consumer::new(consumer.into())));
        self
    }

    /// Sets the time limit of a request. The default is 30 s, because an answer may have 10 MB.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.requests.limit = limit;
        self
    }

    /// Requests the id of this stream. A worker that reads several streams needs their ids.
    ///
    /// # Errors
    ///
    /// Fails if the request failed, or its answer was invalid.
    ///
    /// # Cancel safety
    ///
    /// Safe: `id` only reads.
    pub async fn id(&self) -> Result<StreamId, SourceError> {
        let summary = self.requests.describe().await?;
        let account = summary.stream_arn.split(':').nth(4).unwrap_or_default();
        let created = summary.stream_creation_timestamp.secs();
        let id = format!("{account}:{}:{created}", summary.stream_name).parse();
        self.requests.valid("DescribeStreamSummary", id)
    }

    /// `None` if the token of the next page has expired.
    async fn list(&self) -> Result<Option<Vec<Shard>>, SourceError> {
        let (mut shards, mut token) = (Vec::new(), None);
        loop {
            let Some(page) = self.page(token).await? else { return Ok(None) };
            let listed = convert::all(page.shards.unwrap_or_default(), convert::shard);
            shards.extend(self.requests.valid(LIST, listed)?);
            token = page.next_token;
            if token.is_none() {
                return Ok(Some(shards));
            }
        }
    }

    /// Lists the shards to find out what a `ResourceNotFound` means. If `shard` is listed, the error names
    /// `else_missing`.
    async fn missing(
        &self,
        operation: &'static str,
        shard: &ShardId,
        else_missing: &str,
    ) -> SourceError {
        let operation = self.requests.operation(operation);
        match self.shards().await {
            Ok(listed) if listed.iter().any(|other| other.id == *shard) => {
                let advice = format!("shard {shard} is listed, but {else_missing} is not found");
                operation.error(SourceErrorKind::Unavailable, &advice)
            }
            Ok(_) => {
                let advice = format!("the stream no longer has shard {shard}");
                operation.error(SourceErrorKind::NoSuchShard, &advice)
            }
            Err(error) => error,
        }
    }

    async fn page(&self, token: Option<String>) -> Result<Option<ListShardsOutput>, SourceError> {
        let request = self.requests.client.list_shards();
        let request = match token {
            // The token identifies the stream, so the request must not name the stream.
            Some(token) => request.next_token(token),
            None => request
                .set_stream_name(self.requests.stream.name())
                .set_stream_arn(self.requests.stream.arn()),
        };
        self.requests
            .ask(LIST, async {
                match request.send().await {
                    Err(error) if is(&error, ListShardsError::is_expired_next_token_exception) => {
                        Ok(None)
                    }
                    answer => answer.map(Some),
                }
            })
            .await
    }
}

#[async_trait]
impl Source for KinesisSource {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        for _ in 0..MOST_LISTINGS {
            if let Some(shards) = self.list().await? {
                return Ok(shards);
            }
        }
        let advice = "listing the shards takes longer than its token is valid";
        Err(self.requests.operation(LIST).error(SourceErrorKind::Unavailable, advice))
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        const OPERATION: &str = "GetShardIterator";

        let (start, number, time) = convert::start(from);
        let request = self.requests.client.get_shard_iterator().shard_id(shard.as_str());
        let request = request
            .set_stream_name(self.requests.stream.name())
            .set_stream_arn(self.requests.stream.arn())
            .shard_iterator_type(start)
            .set_starting_sequence_number(number)
            .set_timestamp(time);
        let answer = self.requests.ask(OPERATION, async {
            match request.send().await {
                Err(error)
                    if is(&error, GetShardIteratorError::is_resource_not_found_exception) =>
                {
                    Ok(None)
                }
                answer => answer.map(Some),
            }
        });
        let Some(answer) = answer.await? else {
            return Err(self.missing(OPERATION, shard, "its iterator").await);
        };
        let iterator = answer.shard_iterator.ok_or("no iterator");
        self.requests.valid(OPERATION, iterator).map(ShardIterator::new)
    }

    async fn fetch(&self, iterator: &ShardIterator, limit: u16) -> Result<Fetched, SourceError> {
        const OPERATION: &str = "GetRecords";

        let request = self.requests.client.get_records().shard_iterator(iterator.as_str());
        let request = request.set_stream_arn(self.requests.stream.arn()).limit(i32::from(limit));
        let answer = self.requests.ask(OPERATION, request.send()).await?;
        let behind = answer.millis_behind_latest.unwrap_or(0).try_into().unwrap_or(0);
        let records = convert::all(answer.records, convert::record);
        let children = convert::all(answer.child_shards.unwrap_or_default(), convert::child);
        Ok(Fetched {
            records: self.requests.valid(OPERATION, records)?,
            next: answer.next_shard_iterator.map(ShardIterator::new),
            behind: Duration::from_millis(behind),
            children: self.requests.valid(OPERATION, children)?,
        })
    }

    async fn subscribe(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        let Some(consumer) = &self.consumer else {
            let advice = "no consumer to push to: give this source one with `with_consumer`";
            let operation = self.requests.operation(push::OPERATION);
            return Err(operation.error(SourceErrorKind::Unsupported, advice));
        };
        let (start, number, time) = convert::start(from);
        let start = StartingPosition::builder()
            .r#type(start)
            .set_sequence_number(number)
            .set_timestamp(time)
            .build();
        let start = self.requests.valid(push::OPERATION, start)?;
        let request = self.requests.client.subscribe_to_shard().shard_id(shard.as_str());
        let request = request.consumer_arn(consumer.arn(&self.requests).await?);
        let request = request.starting_position(start);
        let answer = self.requests.ask(push::OPERATION, async {
            match request.send().await {
                Err(error)
                    if is(&error, SubscribeToShardError::is_resource_not_found_exception) =>
                {
                    Ok(None)
                }
                answer => answer.map(Some),
            }
        });
        let Some(answer) = answer.await? else {
            consumer.forget();
            let consumer = format!("consumer {}", consumer.name());
            return Err(self.missing(push::OPERATION, shard, &consumer).await);
        };
        Ok(Subscription::new(self.requests.clone(), answer.event_stream).pushes())
    }
}

impl fmt::Debug for KinesisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinesisSource")
            .field("stream", &self.requests.stream)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const LIST: &str = "ListShards";

/// A token is valid for 5 minutes. If a listing takes longer, another attempt will rarely be faster.
const MOST_LISTINGS: usize = 3;
