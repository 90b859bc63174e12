//! A sink for Firehose.

use std::fmt;

use async_trait::async_trait;
use aws_sdk_firehose::Client;
use aws_sdk_firehose::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_firehose::primitives::Blob;
use aws_sdk_firehose::types::Record as FirehoseRecord;
use lease_core::FencingToken;

use crate::batch::Record;
use crate::error::ServiceError;
use crate::limits::Limits;
use crate::sink::aws::{answer, failure, refused, stream_sink};
use crate::sink::{Put, Sink};

/// Sends to a Firehose stream by `PutRecordBatch`.
///
/// Firehose concatenates records, so each record ends with a line break. Firehose bills each record
/// rounded up to 5 KB, so packed records cost less. Firehose cannot compare fencing tokens.
#[derive(Clone)]
pub struct FirehoseSink {
    client: Client,
    stream: String,
    limits: Limits,
}

stream_sink!(FirehoseSink, Limits::FIREHOSE, "its name");

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
            request = request.records(entry.map_err(refused)?);
        }
        let response = request
            .send()
            .await
            .map_err(|error| failure(error.code(), DisplayErrorContext(&error).to_string()))?;
        let answers = response.request_responses().iter();
        Ok(answers.map(|entry| answer(entry.error_code(), entry.error_message())).collect())
    }
}
