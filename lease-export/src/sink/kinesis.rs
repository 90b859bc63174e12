//! A sink for Kinesis Data Streams.

use std::fmt;

use async_trait::async_trait;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use lease_core::FencingToken;

use crate::batch::Record;
use crate::error::ServiceError;
use crate::limits::Limits;
use crate::sink::aws::{answer, failure, refused, stream_sink};
use crate::sink::{Put, Sink};

/// Sends to a Kinesis stream by `PutRecords`.
///
/// A record's partition key is the id of its first event, so records spread over all shards,
/// without an order between shards. An exporter can set [other
/// keys](crate::Exporter::with_partition_key). If some records of a request fail, the service does not keep
/// the order of the others. The stream cannot compare fencing tokens: receivers recognise
/// repetitions by the events' ids.
#[derive(Clone)]
pub struct KinesisSink {
    client: Client,
    stream: String,
    limits: Limits,
}

stream_sink!(KinesisSink, Limits::KINESIS, "its name, or its ARN");

#[async_trait]
impl Sink for KinesisSink {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn put(
        &self,
        _token: FencingToken,
        records: &[Record],
    ) -> Result<Vec<Put>, ServiceError> {
        let request = self.client.put_records();
        let mut request = if self.stream.starts_with("arn:") {
            request.stream_arn(&self.stream)
        } else {
            request.stream_name(&self.stream)
        };
        for record in records {
            let entry = PutRecordsRequestEntry::builder()
                .partition_key(record.key().as_str())
                .data(Blob::new(record.data()));
            request = request.records(entry.build().map_err(refused)?);
        }
        let response = request
            .send()
            .await
            .map_err(|error| failure(error.code(), DisplayErrorContext(&error).to_string()))?;
        let answers = response.records().iter();
        Ok(answers.map(|entry| answer(entry.error_code(), entry.error_message())).collect())
    }
}
