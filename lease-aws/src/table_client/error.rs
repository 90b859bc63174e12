//! What went wrong, whether asking again may help, and what to do about it: judged here alone.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use lease_core::{StoreError, StoreErrorKind};

use super::request::Table;

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

/// What is to be done about a table that is not as leases need it: whoever it was made for knows.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "for the tables of this repository")]
pub struct Advice {
    /// Where there is none.
    pub missing: &'static str,
    /// Where its key is another.
    pub other_key: &'static str,
}

/// The error of `operation` on `table`.
pub(super) fn failed<E>(
    operation: &'static str,
    table: &Table,
    error: SdkError<E, HttpResponse>,
) -> StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let (kind, advice) = match &error {
        SdkError::TimeoutError(_) => (StoreErrorKind::Unavailable, "no answer in time".to_owned()),
        SdkError::DispatchFailure(failure) if failure.is_other() || failure.is_user() => {
            dispatch_advice(&error)
        }
        SdkError::DispatchFailure(_) => (StoreErrorKind::Unavailable, "not reached".to_owned()),
        SdkError::ResponseError(_) => {
            (StoreErrorKind::Unavailable, "an answer that cannot be read".to_owned())
        }
        SdkError::ServiceError(service) => service_advice(
            operation,
            table,
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
    let sentence = format!("{operation} on table {}: {advice}", table.name);
    StoreError::new(kind, Failed { sentence, source: Some(Box::new(error)) })
}

/// No answer to `operation` within the store's own time limit, retries included.
pub(super) fn timed_out(operation: &'static str, table: &str, limit: Duration) -> StoreError {
    told(
        StoreErrorKind::Unavailable,
        format!("{operation} on table {table}: no answer within {limit:?}"),
    )
}

/// An error that is found without an answer of DynamoDB.
pub fn told(kind: StoreErrorKind, sentence: impl Into<String>) -> StoreError {
    StoreError::new(kind, Failed { sentence: sentence.into(), source: None })
}

/// An item that cannot be read. Of what was found, which may be 400 KB, the beginning is told.
pub fn corrupt(key: &str, column: &str, found: impl fmt::Display) -> StoreError {
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(LONGEST_TOLD) {
        found.truncate(end);
        found.push_str(" and more");
    }
    told(StoreErrorKind::Corrupt, format!("column {column:?} of item {key:?} is {found}"))
}

/// In characters.
const LONGEST_TOLD: usize = 200;

/// The SDK reports missing credentials as a failed dispatch, and by its text alone. Credentials
/// that could not be fetched this time are another matter: asking again may help.
fn dispatch_advice(error: &(dyn Error + 'static)) -> (StoreErrorKind, String) {
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
            return (
                StoreErrorKind::Misconfigured,
                "no credentials: give the client a credentials provider".to_owned(),
            );
        }
        level = cause.source();
    }
    (StoreErrorKind::Unavailable, "not reached".to_owned())
}

fn service_advice(
    operation: &'static str,
    table: &Table,
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
        | "IncompleteSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken"
        | "InvalidClientTokenId"
        | "ExpiredTokenException"
        | "ExpiredToken" => (
            StoreErrorKind::Denied,
            format!("credentials refused ({code}): check them, and this machine's clock"),
        ),
        "ResourceNotFoundException" => (
            StoreErrorKind::Misconfigured,
            format!(
                "there is no table {} in this account and region: {}",
                table.name, table.advice.missing
            ),
        ),
        "ValidationException" if message.contains("Expression size") => (
            StoreErrorKind::Refused,
            "too many attributes for one write, whose expression may have 4 KB: create the item \
             with fewer than 100, and update the rest"
                .to_owned(),
        ),
        "ValidationException" if message.contains("exceeded the maximum allowed size") => (
            StoreErrorKind::Refused,
            "the item would be larger than 400 KB: keep its attributes elsewhere".to_owned(),
        ),
        "ValidationException" if message.contains("incorrect data type") => (
            StoreErrorKind::Corrupt,
            "a column has another type than leases need: correct the item, or name other columns"
                .to_owned(),
        ),
        "ValidationException" if OTHER_KEY.iter().any(|text| message.contains(text)) => (
            StoreErrorKind::Misconfigured,
            format!("the table has another key than {}: {}", table.key, table.advice.other_key),
        ),
        // Two writes at once, one of them another program's transaction or another region's.
        "TransactionConflictException" | "ReplicatedWriteConflictException" => {
            (StoreErrorKind::Unavailable, format!("another write came between ({code})"))
        }
        _ if server_fault => (StoreErrorKind::Unavailable, format!("DynamoDB failed ({code})")),
        _ => (StoreErrorKind::Misconfigured, format!("refused ({code}): {message}")),
    }
}

/// How `DynamoDB` says that a request does not name the table's key as its schema does: by the names
/// and the number of its parts, and by their types. Which text it is depends on the operation.
const OTHER_KEY: [&str; 4] = [
    "does not match the schema",
    "One of the required keys was not given a value",
    "Type mismatch for key",
    "The number of conditions on the keys is invalid",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: &str, message: &str, server_fault: bool) -> (StoreErrorKind, String) {
        let advice = Advice { missing: "make it", other_key: "use another" };
        let (name, key) = ("leases".to_owned(), "lease_key".to_owned());
        let table = Table { name, key, advice };
        service_advice("UpdateItem", &table, code, message, server_fault)
    }

    #[test]
    fn each_refusal_has_its_kind() {
        let size = "Item size to update has exceeded the maximum allowed size";
        for (code, message, server_fault, expected) in [
            ("ThrottlingException", "", false, StoreErrorKind::Throttled),
            ("RequestLimitExceeded", "", false, StoreErrorKind::Throttled),
            ("AccessDeniedException", "", false, StoreErrorKind::Denied),
            ("ExpiredTokenException", "", false, StoreErrorKind::Denied),
            ("ResourceNotFoundException", "", false, StoreErrorKind::Misconfigured),
            ("ValidationException", size, false, StoreErrorKind::Refused),
            (
                "ValidationException",
                "An operand in the update expression has an incorrect data type",
                false,
                StoreErrorKind::Corrupt,
            ),
            ("InternalServerError", "", true, StoreErrorKind::Unavailable),
            ("TransactionConflictException", "", false, StoreErrorKind::Unavailable),
            ("SomethingNew", "", true, StoreErrorKind::Unavailable),
            ("SomethingNew", "", false, StoreErrorKind::Misconfigured),
        ] {
            assert_eq!(told(code, message, server_fault).0, expected, "{code}");
        }
    }

    #[test]
    fn of_what_cannot_be_read_the_beginning_is_told() {
        let told = |found: &str| corrupt("a", "token", found).source().unwrap().to_string();

        assert_eq!(told("12.5, not a whole number").matches("12.5, not a whole").count(), 1);
        let long = told(&format!("not a number: {}", "ß".repeat(100_000)));
        assert!(long.contains("\"token\" of item \"a\" is not a number: ß"), "{long}");
        assert!(long.ends_with("ß and more") && long.chars().count() < 250, "{long}");
    }

    #[test]
    fn what_to_do_is_said() {
        let said = |code, message| told(code, message, false).1;

        assert!(said("AccessDeniedException", "").contains("dynamodb:UpdateItem"));
        assert!(said("ResourceNotFoundException", "").ends_with("region: make it"));
        for other in [
            "The provided key element does not match the schema",
            "One or more parameter values were not valid: One of the required keys was not given a value",
            "One or more parameter values were not valid: Type mismatch for key lease_key expected: \
             N actual: S",
            "The number of conditions on the keys is invalid",
        ] {
            let advice = said("ValidationException", other);
            assert!(advice.ends_with("than lease_key: use another"), "{other}: {advice}");
            assert_eq!(told("ValidationException", other, false).0, StoreErrorKind::Misconfigured);
        }
    }
}
