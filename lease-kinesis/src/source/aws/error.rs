//! What went wrong with a request, and what to do about it: judged here alone.
//!
//! `lease-dynamodb` judges its service's errors alike, and in the same words where they are AWS's and
//! not the service's. It is not asked: who reads a stream would build DynamoDB's SDK for three lists of
//! names, whatever table the leases are in.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};

use crate::source::{SourceError, SourceErrorKind};

/// What was asked of which stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) operation: &'static str,
    pub(super) stream: &'a str,
}

/// A request that brought no answer: which one it was, and what to do.
#[derive(Debug)]
struct Failed {
    sentence: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Asked<'_> {
    /// The error of a request, or of the pushes that it began.
    pub(super) fn failed<E, R>(self, error: SdkError<E, R>) -> SourceError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        R: fmt::Debug + Send + Sync + 'static,
    {
        let (kind, advice) = match &error {
            SdkError::TimeoutError(_) => {
                (SourceErrorKind::Unavailable, "no answer in time".to_owned())
            }
            SdkError::DispatchFailure(failure) if failure.is_other() || failure.is_user() => {
                dispatch_advice(&error)
            }
            SdkError::DispatchFailure(_) => {
                (SourceErrorKind::Unavailable, "not reached".to_owned())
            }
            SdkError::ResponseError(_) => {
                (SourceErrorKind::Unavailable, "an answer that cannot be read".to_owned())
            }
            SdkError::ServiceError(service) => {
                let error = service.err();
                self.advice(error.code().unwrap_or_default(), error.message().unwrap_or_default())
            }
            // A client without a region, an endpoint or an HTTP client; and whatever comes later.
            _ => (
                SourceErrorKind::Refused,
                "the request could not be made: check the client's region, endpoint and HTTP client"
                    .to_owned(),
            ),
        };
        let sentence = self.sentence(&advice);
        SourceError::new(kind, Failed { sentence, source: Some(Box::new(error)) })
    }

    /// No answer within the source's own time limit.
    pub(super) fn timed_out(self, limit: Duration) -> SourceError {
        self.told(SourceErrorKind::Unavailable, &format!("no answer within {limit:?}"))
    }

    /// An error that this crate found by itself.
    pub(super) fn told(self, kind: SourceErrorKind, advice: &str) -> SourceError {
        SourceError::new(kind, Failed { sentence: self.sentence(advice), source: None })
    }

    fn sentence(self, advice: &str) -> String {
        format!("{} of stream {}: {advice}", self.operation, self.stream)
    }

    fn advice(self, code: &str, message: &str) -> (SourceErrorKind, String) {
        let Self { operation, stream } = self;
        match code {
            "ExpiredIteratorException" => {
                (SourceErrorKind::ExpiredIterator, format!("the iterator is too old: {message}"))
            }
            // Nothing else of the request can be wrong.
            "InvalidArgumentException" | "ValidationException" if operation == "GetRecords" => {
                (SourceErrorKind::ExpiredIterator, format!("the iterator is none: {message}"))
            }
            "InvalidArgumentException" | "ValidationException" => {
                (SourceErrorKind::Refused, format!("refused: {message}"))
            }
            // Of the stream or of the shard, and no word of this says which: whoever asks for the
            // next iterator is told.
            "ResourceNotFoundException" if operation == "GetRecords" => {
                (SourceErrorKind::ExpiredIterator, format!("the iterator leads nowhere: {message}"))
            }
            // While records are pushed; the next subscription tells what is gone.
            "ResourceNotFoundException" if operation == "SubscribeToShard" => {
                (SourceErrorKind::Unavailable, format!("the subscription is over: {message}"))
            }
            "ResourceNotFoundException" => (
                SourceErrorKind::NoSuchStream,
                format!("there is no stream {stream} in this account and region: {message}"),
            ),
            // Of a shard that is subscribed to; otherwise of a stream that is being changed.
            "ResourceInUseException" if operation == "SubscribeToShard" => (
                SourceErrorKind::Throttled,
                format!("somebody subscribed a moment ago, or takes over: {message}"),
            ),
            "ResourceInUseException" => {
                (SourceErrorKind::Unavailable, format!("not ready: {message}"))
            }
            "ProvisionedThroughputExceededException"
            | "LimitExceededException"
            | "KMSThrottlingException"
            | "RequestLimitExceeded"
            | "ThrottlingException"
            | "Throttling"
            | "TooManyRequestsException" => {
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
                format!("the key that the stream is encrypted with cannot be used: {message}"),
            ),
            "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "IncompleteSignatureException"
            | "IncompleteSignature"
            | "MissingAuthenticationTokenException"
            | "MissingAuthenticationToken"
            | "InvalidClientTokenId"
            | "ExpiredTokenException"
            | "ExpiredToken" => (
                SourceErrorKind::Denied,
                format!("credentials refused ({code}): check them, and this machine's clock"),
            ),
            _ => (SourceErrorKind::Unavailable, format!("failed ({code}): {message}")),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// The SDK reports missing credentials as a failed dispatch, and by its text alone. Credentials
/// that could not be fetched this time are another matter: asking again may help.
fn dispatch_advice(error: &(dyn Error + 'static)) -> (SourceErrorKind, String) {
    let mut level = Some(error);
    while let Some(cause) = level {
        let text = cause.to_string();
        if [
            "was not enabled",
            "not properly configured",
            "no providers in chain",
            "identity resolver",
        ]
        .iter()
        .any(|missing| text.contains(missing))
        {
            let advice = "no credentials: give the client a credentials provider";
            return (SourceErrorKind::Denied, advice.to_owned());
        }
        level = cause.source();
    }
    (SourceErrorKind::Unavailable, "not reached".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(operation: &'static str, code: &str) -> SourceErrorKind {
        Asked { operation, stream: "orders" }.advice(code, "Shard 7 does not exist").0
    }

    #[test]
    fn each_refusal_has_its_kind() {
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
    fn what_to_do_is_said() {
        let asked = Asked { operation: "GetRecords", stream: "orders" };
        let (_, advice) = asked.advice("AccessDeniedException", "");

        assert!(advice.contains("kinesis:GetRecords"));
        assert_eq!(asked.sentence("not reached"), "GetRecords of stream orders: not reached");
    }
}
