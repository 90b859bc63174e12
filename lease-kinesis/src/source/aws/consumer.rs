//! The consumer whose name pushes are asked for in: found, or registered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::operation::describe_stream_consumer::DescribeStreamConsumerError;
use aws_sdk_kinesis::operation::register_stream_consumer::RegisterStreamConsumerError;
use aws_sdk_kinesis::types::ConsumerStatus;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::requests::{Requests, is};
use crate::source::{SourceError, SourceErrorKind};

#[derive(Debug)]
pub(super) struct Consumer {
    name: String,
    /// Replaced by an empty one where it turns out to be gone.
    arn: Mutex<Arc<OnceCell<String>>>,
}

impl Consumer {
    /// The consumer with this name, or ARN.
    pub(super) fn new(name: String) -> Self {
        let known = name.starts_with("arn:").then(|| name.clone());
        Self { name, arn: Mutex::new(Arc::new(OnceCell::new_with(known))) }
    }

    /// Its name, or its ARN.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its ARN. It is found once, however many shards are subscribed to.
    pub(super) async fn arn(&self, requests: &Requests) -> Result<String, SourceError> {
        let cell = Arc::clone(&self.arn.lock().unwrap_or_else(PoisonError::into_inner));
        cell.get_or_try_init(|| self.find_or_register(requests)).await.cloned()
    }

    /// Finds it anew next time.
    pub(super) fn forget(&self) {
        if !self.name.starts_with("arn:") {
            *self.arn.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        }
    }

    async fn find_or_register(&self, requests: &Requests) -> Result<String, SourceError> {
        let stream = match requests.stream.arn() {
            Some(arn) => arn,
            None => requests.describe().await?.stream_arn,
        };
        for _ in 0..MOST_LOOKS {
            match self.look(requests, &stream).await? {
                Some((arn, ConsumerStatus::Active)) => return Ok(arn),
                // Registered just now, or being removed: after that it can be registered.
                Some(_) => sleep(BETWEEN_LOOKS).await,
                None => self.register(requests, &stream).await?,
            }
        }
        let advice = format!("consumer {} does not become active", self.name);
        Err(requests.asked("DescribeStreamConsumer").told(SourceErrorKind::Unavailable, &advice))
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
            requests.sense(OPERATION, answer.consumer_description.ok_or("no description"))?;
        Ok(Some((found.consumer_arn, found.consumer_status)))
    }

    async fn register(&self, requests: &Requests, stream: &str) -> Result<(), SourceError> {
        let request = requests.client.register_stream_consumer();
        let request = request.stream_arn(stream).consumer_name(&self.name).send();
        requests
            .ask("RegisterStreamConsumer", async {
                match request.await {
                    // Another worker was faster.
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

/// For a minute: a consumer is active after some seconds.
const MOST_LOOKS: usize = 60;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
