//! What went wrong with a KCL table, whether asking again may help, and what to do about it.

use std::error::Error;
use std::fmt;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use lease_core::{StoreError, StoreErrorKind};

/// A request that brought no answer: which one it was, and what to do.
#[derive(Debug)]
struct Failed {
    sentence: String,
    source: Option<Box<dyn Error + Send + Sync>>,
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

/// The error of `operation` on `table`.
pub(super) fn failed<E>(
    operation: &'static str,
    table: &str,
    error: SdkError<E, HttpResponse>,
) -> StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let (kind, advice) = match &error {
        SdkError::TimeoutError(_) => (StoreErrorKind::Unavailable, "no answer in time".to_owned()),
        SdkError::DispatchFailure(_) => (StoreErrorKind::Unavailable, "not reached".to_owned()),
        SdkError::ResponseError(_) => {
            (StoreErrorKind::Unavailable, "an answer that cannot be read".to_owned())
        }
        SdkError::ServiceError(service) => service_advice(
            operation,
            service.err().code().unwrap_or_default(),
            service.err().message().unwrap_or_default(),
            service.raw().status().is_server_error(),
        ),
        // A client without a region, an endpoint or an HTTP client; and whatever comes later.
        _ => (
            StoreErrorKind::Misconfigured,
            "the request could not be made: check the client's region, endpoint and HTTP client"
                .to_owned(),
        ),
    };
    let sentence = format!("{operation} on table {table}: {advice}");
    StoreError::new(kind, Failed { sentence, source: Some(Box::new(error)) })
}

/// An error that is found without an answer of DynamoDB.
pub(super) fn told(kind: StoreErrorKind, sentence: impl Into<String>) -> StoreError {
    StoreError::new(kind, Failed { sentence: sentence.into(), source: None })
}

/// A row that no version of KCL and none of this crate writes.
pub(super) fn corrupt(lease_key: &str, attribute: &str, found: impl fmt::Display) -> StoreError {
    let text = format!("attribute {attribute:?} of row {lease_key:?} is {found}");
    told(StoreErrorKind::Corrupt, text)
}

fn service_advice(
    operation: &'static str,
    code: &str,
    message: &str,
    server_fault: bool,
) -> (StoreErrorKind, String) {
    match code {
        "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "ThrottlingException"
        | "Throttling"
        | "TooManyRequestsException"
        | "LimitExceededException" => (
            StoreErrorKind::Throttled,
            format!("throttled ({code}): give the table more capacity, or bill it on demand"),
        ),
        "AccessDeniedException" => (
            StoreErrorKind::Denied,
            format!("access denied: allow the action dynamodb:{operation} on this table"),
        ),
        "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "InvalidClientTokenId"
        | "ExpiredToken"
        | "ExpiredTokenException" => (
            StoreErrorKind::Denied,
            format!("credentials refused ({code}): check them, and this machine's clock"),
        ),
        "ResourceNotFoundException" => (
            StoreErrorKind::Misconfigured,
            "there is no such table in this account and region: make it with \
             `KclTable::ensure_table()`, or correct its name"
                .to_owned(),
        ),
        "ValidationException" if message.contains("does not match the schema") => (
            StoreErrorKind::Misconfigured,
            "the table is none of KCL's: its key is not leaseKey".to_owned(),
        ),
        // Two writes at once, one of them another program's transaction or another region's.
        "TransactionConflictException" | "ReplicatedWriteConflictException" => {
            (StoreErrorKind::Unavailable, format!("another write came between ({code})"))
        }
        _ if server_fault => (StoreErrorKind::Unavailable, format!("DynamoDB failed ({code})")),
        _ => (StoreErrorKind::Misconfigured, format!("refused ({code}): {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_kind() {
        for (code, server_fault, expected) in [
            ("ThrottlingException", false, StoreErrorKind::Throttled),
            ("AccessDeniedException", false, StoreErrorKind::Denied),
            ("ExpiredTokenException", false, StoreErrorKind::Denied),
            ("ResourceNotFoundException", false, StoreErrorKind::Misconfigured),
            ("TransactionConflictException", false, StoreErrorKind::Unavailable),
            ("InternalServerError", true, StoreErrorKind::Unavailable),
            ("SomethingNew", false, StoreErrorKind::Misconfigured),
        ] {
            let (kind, _) = service_advice("UpdateItem", code, "", server_fault);
            assert_eq!(kind, expected, "{code}");
        }
    }
}
