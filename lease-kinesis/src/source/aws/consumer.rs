//! Looks up the consumer of enhanced fan-out, or registers it.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::operation::describe_stream_consumer::DescribeStreamConsumerError;
use aws_sdk_kinesis::operation::register_stream_consumer::RegisterStreamConsumerError;
use aws_sdk_kinesis::types::ConsumerStatus;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::requests::{Requests, is};
use crate::source::{SourceError, SourceErrorKind};

#[derive(Debug)]
pub(super) struct Consumer {
    name: String,
    /// An empty cell replaces the ARN if the consumer may no longer exist.
    arn: Mutex<Arc<OnceCell<String>>>,
}

impl Consumer {
    pub(super) fn new(name: String) -> Self {
        let known = name.starts_with("arn:").then(|| name.clone());
        Self { name, arn: Mutex::new(Arc::new(OnceCell::new_with(known))) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Requests the ARN at most once for all subscriptions.
    pub(super) async fn arn(&self, requests: &Requests) -> Result<String, SourceError> {
        let cell = Arc::clone(&self.arn.lock());
        cell.get_or_try_init(|| self.find_or_register(requests)).await.cloned()
    }

    pub(super) fn forget(&self) {
        if !self.name.starts_with("arn:") {
            *self.arn.lock() = Arc::default();
        }
    }

    async fn find_or_register(&self, requests: &Requests) -> Result<String, SourceError> {
        let stream = match requests.stream.arn() {
            Some(arn) => arn,
            None => requests.describe().await?.stream_arn,
        };
        for _ in 0..MAX_LOOKUPS {
            match self.look(requests, &stream).await? {
                Some((arn, ConsumerStatus::Active)) => return Ok(arn),
                // After a deletion, this loop registers the consumer again.
                Some(_) => sleep(LOOKUP_INTERVAL).await,
                None => self.register(requests, &stream).await?,
            }
        }
        let advice = format!("consumer {} does not become active", self.name);
        Err(requests
            .operation("DescribeStreamConsumer")
            .error(SourceErrorKind::Unavailable, &advice))
    }

    async fn look(
        &self,
        requests: &Requests,
        stream: &str,
    ) -> Result<Option<(String, ConsumerStatus)>, SourceError> {
        const OPERATION: &str = "DescribeStreamConsumer";

        let request = requests.client.describe_stream_consumer();
        let request = request.stream_arn(stream).consumer_name(&self.name).send();
        let answer = requests
            .ask(OPERATION, async {
                match request.await {
                    Err(error)
                        if is(
                            &error,
                            DescribeStreamConsumerError::is_resource_not_found_exception,
                        ) =>
                    {
                        Ok(None)
                    }
                    answer => answer.map(Some),
                }
            })
            .await?;
        let Some(answer) = answer else { return Ok(None) };
        let found =
            requests.valid(OPERATION, answer.consumer_description.ok_or("no description"))?;
        Ok(Some((found.consumer_arn, found.consumer_status)))
    }

    async fn register(&self, requests: &Requests, stream: &str) -> Result<(), SourceError> {
        let request = requests.client.register_stream_consumer();
        let request = request.stream_arn(stream).consumer_name(&self.name).send();
        requests
            .ask("RegisterStreamConsumer", async {
                match request.await {
                    Err(error)
                        if is(
                            &error,
                            RegisterStreamConsumerError::is_resource_in_use_exception,
                        ) =>
                    {
                        Ok(())
                    }
                    answer => answer.map(drop),
                }
            })
            .await
    }
}

/// All lookups take one minute together. A consumer becomes active after some seconds.
const MAX_LOOKUPS: usize = 60;

const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
