//! Sends requests to one stream, each with a time limit.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::types::StreamDescriptionSummary;
use tokio::time::timeout;

use super::error::Operation;
use crate::source::{SourceError, SourceErrorKind};

#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) stream: StreamName,
    pub(super) limit: Duration,
}

#[derive(Debug, Clone)]
pub(super) enum StreamName {
    Name(String),
    Arn(String),
}

impl StreamName {
    pub(super) fn new(text: String) -> Self {
        if text.starts_with("arn:") { Self::Arn(text) } else { Self::Name(text) }
    }

    fn as_str(&self) -> &str {
        let (Self::Name(text) | Self::Arn(text)) = self;
        text
    }

    /// `None` if the stream is given by its ARN.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Name(name) => Some(name.clone()),
            Self::Arn(_) => None,
        }
    }

    pub(super) fn arn(&self) -> Option<String> {
        match self {
            Self::Name(_) => None,
            Self::Arn(arn) => Some(arn.clone()),
        }
    }
}

impl Requests {
    pub(super) fn new(client: &Client, stream: StreamName, limit: Duration) -> Self {
        // Shares the connections of the user's client. The reader of each shard retries, not the SDK.
        let config = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        Self { client: Client::from_conf(config), stream, limit }
    }

    pub(super) fn operation(&self, operation: &'static str) -> Operation<'_> {
        Operation { operation, stream: self.stream.as_str() }
    }

    pub(super) async fn ask<T, E, R>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, SdkError<E, R>>>,
    ) -> Result<T, SourceError>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: fmt::Debug + Send + Sync + 'static,
    {
        let operation = self.operation(operation);
        match timeout(self.limit, Box::pin(request)).await {
            Ok(answer) => answer.map_err(|error| operation.failed(error)),
            Err(_) => Err(operation.timed_out(self.limit)),
        }
    }

    pub(super) fn valid<T, E: fmt::Display>(
        &self,
        operation: &'static str,
        answer: Result<T, E>,
    ) -> Result<T, SourceError> {
        answer.map_err(|invalid| {
            let advice = format!("invalid answer: {invalid}");
            self.operation(operation).error(SourceErrorKind::Unavailable, &advice)
        })
    }

    pub(super) async fn describe(&self) -> Result<StreamDescriptionSummary, SourceError> {
        const OPERATION: &str = "DescribeStreamSummary";

        let request = self.client.describe_stream_summary();
        let request = request.set_stream_name(self.stream.name());
        let request = request.set_stream_arn(self.stream.arn());
        let answer = self.ask(OPERATION, request.send()).await?;
        let summary = answer.stream_description_summary.ok_or("no description");
        self.valid(OPERATION, summary)
    }
}

pub(super) fn is<E, R>(error: &SdkError<E, R>, of_type: fn(&E) -> bool) -> bool {
    error.as_service_error().is_some_and(of_type)
}
