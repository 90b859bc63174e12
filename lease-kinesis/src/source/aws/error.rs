//! Classifies the errors of Kinesis requests, and adds advice.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use lease_aws::sdk_error::{RequestError, RequestFailure};

use crate::source::{SourceError, SourceErrorKind};

#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a> {
    pub(super) operation: &'static str,
    pub(super) stream: &'a str,
}

impl Operation<'_> {
    pub(super) fn failed<E, R>(self, error: SdkError<E, R>) -> SourceError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        R: fmt::Debug + Send + Sync + 'static,
    {
        let (kind, advice) = self.advice(RequestFailure::of(&error));
        let message = self.sentence(&advice);
        SourceError::new(kind, RequestError::with_source(message, error))
    }

    pub(super) fn timed_out(self, limit: Duration) -> SourceError {
        self.error(SourceErrorKind::Unavailable, &format!("no answer within {limit:?}"))
    }

    /// Creates the error for a failure that this crate detected, not the SDK.
    pub(super) fn error(self, kind: SourceErrorKind, advice: &str) -> SourceError {
        SourceError::new(kind, RequestError::new(self.sentence(advice)))
    }

    fn sentence(self, advice: &str) -> String {
        format!("{} of stream {}: {advice}", self.operation, self.stream)
    }

    fn advice(self, failure: RequestFailure<'_>) -> (SourceErrorKind, String) {
        match failure {
            RequestFailure::TimedOut
            | RequestFailure::NotReached
            | RequestFailure::UnreadableAnswer => {
                (SourceErrorKind::Unavailable, failure.to_string())
            }
            RequestFailure::NotBuilt => (SourceErrorKind::Refused, failure.to_string()),
            RequestFailure::NoCredentials | RequestFailure::CredentialsRefused(_) => {
                (SourceErrorKind::Denied, failure.to_string())
            }
            RequestFailure::Throttled { .. } => (SourceErrorKind::Throttled, failure.to_string()),
            RequestFailure::Service { code, message } => self.service_advice(code, message),
        }
    }

    fn service_advice(self, code: &str, message: &str) -> (SourceErrorKind, String) {
        let Self { operation, stream } = self;
        match code {
            "ExpiredIteratorException" => {
                (SourceErrorKind::ExpiredIterator, format!("the iterator is too old: {message}"))
            }
            // The iterator is the only argument of this request that can be invalid.
            "InvalidArgumentException" | "ValidationException" if operation == "GetRecords" => {
                (SourceErrorKind::ExpiredIterator, format!("the iterator is invalid: {message}"))
            }
            "InvalidArgumentException" | "ValidationException" => {
                (SourceErrorKind::Refused, format!("refused: {message}"))
            }
            // The reader now requests a new iterator. The error of that request shows whether the stream or
            // the shard is missing.
            "ResourceNotFoundException" if operation == "GetRecords" => (
                SourceErrorKind::ExpiredIterator,
                format!("the iterator's stream or shard does not exist: {message}"),
            ),
            // The reader now subscribes again. The error of that request names the missing resource.
            "ResourceNotFoundException" if operation == "SubscribeToShard" => {
                (SourceErrorKind::Unavailable, format!("the subscription has ended: {message}"))
            }
            "ResourceNotFoundException" => (
                SourceErrorKind::NoSuchStream,
                format!("there is no stream {stream} in this account and region: {message}"),
            ),
            // If a subscription gets this error, the shard has another subscription. If any other request gets
            // it, the stream is being changed.
            "ResourceInUseException" if operation == "SubscribeToShard" => (
                SourceErrorKind::Throttled,
                format!("another subscription of this consumer started a moment ago: {message}"),
            ),
            "ResourceInUseException" => {
                (SourceErrorKind::Unavailable, format!("not ready: {message}"))
            }
            "KMSThrottlingException" => {
                (SourceErrorKind::Throttled, format!("throttled ({code}): {message}"))
            }
            "AccessDeniedException" => (
                SourceErrorKind::Denied,
                format!("access denied: allow the action kinesis:{operation} on this stream"),
            ),
            "KMSAccessDeniedException"
            | "KMSDisabledException"
            | "KMSInvalidStateException"
            | "KMSNotFoundException"
            | "KMSOptInRequired" => (
                SourceErrorKind::Denied,
                format!("the stream's encryption key cannot be used: {message}"),
            ),
            _ => (SourceErrorKind::Unavailable, format!("failed ({code}): {message}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(operation: &'static str, code: &str) -> SourceErrorKind {
        let failure = RequestFailure::of_service(code, "Shard 7 does not exist");
        Operation { operation, stream: "orders" }.advice(failure).0
    }

    #[test]
    fn service_errors_map_to_their_kinds() {
        for (operation, code, expected) in [
            ("GetRecords", "ExpiredIteratorException", SourceErrorKind::ExpiredIterator),
            ("GetRecords", "InvalidArgumentException", SourceErrorKind::ExpiredIterator),
            ("GetShardIterator", "InvalidArgumentException", SourceErrorKind::Refused),
            ("GetRecords", "ProvisionedThroughputExceededException", SourceErrorKind::Throttled),
            ("ListShards", "LimitExceededException", SourceErrorKind::Throttled),
            ("GetRecords", "KMSThrottlingException", SourceErrorKind::Throttled),
            ("GetRecords", "KMSDisabledException", SourceErrorKind::Denied),
            ("GetRecords", "AccessDeniedException", SourceErrorKind::Denied),
            ("GetRecords", "ExpiredTokenException", SourceErrorKind::Denied),
            ("SubscribeToShard", "ResourceInUseException", SourceErrorKind::Throttled),
            ("ListShards", "ResourceInUseException", SourceErrorKind::Unavailable),
            ("ListShards", "ResourceNotFoundException", SourceErrorKind::NoSuchStream),
            ("DescribeStreamSummary", "ResourceNotFoundException", SourceErrorKind::NoSuchStream),
            ("GetRecords", "ResourceNotFoundException", SourceErrorKind::ExpiredIterator),
            ("SubscribeToShard", "ResourceNotFoundException", SourceErrorKind::Unavailable),
            ("GetRecords", "InternalFailureException", SourceErrorKind::Unavailable),
            ("GetRecords", "SomethingNew", SourceErrorKind::Unavailable),
        ] {
            assert_eq!(kind(operation, code), expected, "{operation}: {code}");
        }
    }

    #[test]
    fn access_denied_names_missing_permission() {
        let operation = Operation { operation: "GetRecords", stream: "orders" };
        let (_, advice) = operation.service_advice("AccessDeniedException", "");

        assert!(advice.contains("kinesis:GetRecords"));
        assert_eq!(operation.sentence("not reached"), "GetRecords of stream orders: not reached");
    }
}
