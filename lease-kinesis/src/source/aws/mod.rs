//! A stream in AWS, by aws-sdk-kinesis.

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

/// Reads a stream in AWS.
///
/// The client needs a region, credentials, and an HTTP client: this crate switches off the SDK's
/// default features, which bring an HTTP client. Its retries are switched off here: whoever reads
/// through a source retries, at the pace of each shard.
///
/// Allow it `kinesis:ListShards`, `GetShardIterator` and `GetRecords`; for [`id`](Self::id),
/// `DescribeStreamSummary`; for enhanced fan-out, that and `SubscribeToShard`,
/// `DescribeStreamConsumer` and `RegisterStreamConsumer`.
///
/// # Examples
///
/// ```no_run
/// use lease_kinesis::KinesisSource;
///
/// # fn run(client: &aws_sdk_kinesis::Client) {
/// let orders = KinesisSource::new(client, "orders");
/// let pushed = KinesisSource::new(client, "arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
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
    /// Reads `stream`: its name, or its ARN, which a stream of another account needs.
    pub fn new(client: &Client, stream: impl Into<String>) -> Self {
        let stream = StreamName::new(stream.into());
        Self { requests: Requests::new(client, stream, REQUEST_TIMEOUT), consumer: None }
    }

    /// Lets records be pushed, to the consumer of this name, or of this ARN. All workers of an
    /// application share one: the application's name is a good one.
    ///
    /// A name that is not registered is, with the first subscription. Nobody takes it back: a
    /// consumer costs money until it is removed with `DeregisterStreamConsumer`.
    #[must_use]
    pub fn with_consumer(mut self, consumer: impl Into<String>) -> Self {
        self.consumer = Some(Arc::new(Consumer::new(consumer.into())));
        self
    }

    /// How long an answer may take: 30 seconds unless this says otherwise, since one may have
    /// 10 MB. Leases are kept meanwhile.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.requests.limit = limit;
        self
    }

    /// Which stream this is, for a worker that reads several: asks for its account and the time at
    /// which it was created.
    ///
    /// # Errors
    ///
    /// Where the stream could not say.
    pub async fn id(&self) -> Result<StreamId, SourceError> {
        let summary = self.requests.describe().await?;
        let account = summary.stream_arn.split(':').nth(4).unwrap_or_default();
        let created = summary.stream_creation_timestamp.secs();
        let id = format!("{account}:{}:{created}", summary.stream_name).parse();
        self.requests.sense("DescribeStreamSummary", id)
    }

    /// All shards; `None` where it took so long that the place in the list was forgotten.
    async fn list(&self) -> Result<Option<Vec<Shard>>, SourceError> {
        let (mut shards, mut token) = (Vec::new(), None);
        loop {
            let Some(page) = self.page(token).await? else { return Ok(None) };
            let listed = convert::all(page.shards.unwrap_or_default(), convert::shard);
            shards.extend(self.requests.sense(LIST, listed)?);
            token = page.next_token;
            if token.is_none() {
                return Ok(Some(shards));
            }
        }
    }

    /// What is missing, where a request for `shard` was told that something is: the type of that
    /// error is the same for a stream, a shard and a consumer, and the list of shards knows. What
    /// is left where it has the shard, is said by `else_missing`.
    async fn missing(
        &self,
        operation: &'static str,
        shard: &ShardId,
        else_missing: &str,
    ) -> SourceError {
        let asked = self.requests.asked(operation);
        match self.shards().await {
            Ok(listed) if listed.iter().any(|other| other.id == *shard) => {
                let advice = format!("shard {shard} is listed, but {else_missing} is not found");
                asked.told(SourceErrorKind::Unavailable, &advice)
            }
            Ok(_) => {
                let advice = format!("there is no shard {shard} any more");
                asked.told(SourceErrorKind::NoSuchShard, &advice)
            }
            Err(error) => error,
        }
    }

    async fn page(&self, token: Option<String>) -> Result<Option<ListShardsOutput>, SourceError> {
        let request = self.requests.client.list_shards();
        let request = match token {
            // A token says which stream it is of, and nothing else may.
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
        let advice = "listing takes longer than a place in the list is known";
        Err(self.requests.asked(LIST).told(SourceErrorKind::Unavailable, advice))
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        const OPERATION: &str = "GetShardIterator";

        let (place, number, time) = convert::place(from);
        let request = self.requests.client.get_shard_iterator().shard_id(shard.as_str());
        let request = request
            .set_stream_name(self.requests.stream.name())
            .set_stream_arn(self.requests.stream.arn())
            .shard_iterator_type(place)
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
        self.requests.sense(OPERATION, iterator).map(ShardIterator::new)
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
            records: self.requests.sense(OPERATION, records)?,
            next: answer.next_shard_iterator.map(ShardIterator::new),
            behind: Duration::from_millis(behind),
            children: self.requests.sense(OPERATION, children)?,
        })
    }

    async fn subscribe(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        let Some(consumer) = &self.consumer else {
            let advice = "no consumer to push to: give this source one with `with_consumer`";
            let asked = self.requests.asked(push::OPERATION);
            return Err(asked.told(SourceErrorKind::Unsupported, advice));
        };
        let (place, number, time) = convert::place(from);
        let place = StartingPosition::builder()
            .r#type(place)
            .set_sequence_number(number)
            .set_timestamp(time)
            .build();
        let place = self.requests.sense(push::OPERATION, place)?;
        let request = self.requests.client.subscribe_to_shard().shard_id(shard.as_str());
        let request = request.consumer_arn(consumer.arn(&self.requests).await?);
        let request = request.starting_position(place);
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
            // Or it may be the consumer that is gone.
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

/// A place in the list is known for 5 minutes: each listing after the first is good fortune.
const MOST_LISTINGS: usize = 3;
