//! A stream of Firehose.

use std::fmt;

use async_trait::async_trait;
use aws_sdk_firehose::Client;
use aws_sdk_firehose::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_firehose::primitives::Blob;
use aws_sdk_firehose::types::Record as FirehoseRecord;
use lease_core::FencingToken;

use crate::error::{ServiceError, ServiceErrorKind};
use crate::export::batch::Record;
use crate::export::limits::Limits;
use crate::export::sink::{Put, SERVICE, Sink};

/// Sends to a stream of Firehose by `PutRecordBatch`.
///
/// Firehose puts records one after the other, so each ends with a line break. It rounds the size of
/// each up to 5 KB for the bill: packed records cost less. It cannot compare fencing tokens.
#[derive(Clone)]
pub struct FirehoseSink {
    client: Client,
    stream: String,
    limits: Limits,
}

impl FirehoseSink {
    /// Sends to the stream named `stream`. Best over a client without retries of its own: whole
    /// requests are repeated here, too.
    pub fn new(client: Client, stream: impl Into<String>) -> Self {
        Self { client, stream: stream.into(), limits: Limits::FIREHOSE }
    }

    /// Sends as much at once as `limits` says, made of [`Limits::FIREHOSE`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl fmt::Debug for FirehoseSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirehoseSink").field("stream", &self.stream).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for FirehoseSink {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn put(
        &self,
        _token: FencingToken,
        records: &[Record],
    ) -> Result<Vec<Put>, ServiceError> {
        let mut request = self.client.put_record_batch().delivery_stream_name(&self.stream);
        for record in records {
            let entry = FirehoseRecord::builder().data(Blob::new(record.data())).build();
            let refused = |error| ServiceError::new(SERVICE, ServiceErrorKind::Refused, error);
            request = request.records(entry.map_err(refused)?);
        }
        let response = request.send().await.map_err(|error| {
            let kind = match error.code() {
                Some(
                    "AccessDeniedException"
                    | "InvalidArgumentException"
                    | "InvalidSourceException"
                    | "ResourceNotFoundException"
                    | "UnrecognizedClientException"
                    | "ValidationException",
                ) => ServiceErrorKind::Refused,
                _ => ServiceErrorKind::Unavailable,
            };
            ServiceError::new(SERVICE, kind, DisplayErrorContext(&error).to_string())
        })?;
        let answer = |(code, message): (Option<&str>, Option<&str>)| match code {
            None => Put::Taken,
            Some(code) => Put::Failed(format!("{code}: {}", message.unwrap_or_default())),
        };
        let answers = response.request_responses().iter();
        Ok(answers.map(|entry| answer((entry.error_code(), entry.error_message()))).collect())
    }
}
