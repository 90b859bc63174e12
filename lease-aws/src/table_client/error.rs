//! Errors of a table: whether a retry may help, and the remedy.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use lease_core::{StoreError, StoreErrorKind};

use super::table::Table;
use crate::sdk_error::{RequestError, RequestFailure};

pub(super) fn request_error<E>(
    operation: &'static str,
    table: &Table,
    error: SdkError<E, HttpResponse>,
) -> StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let server_fault = match &error {
        SdkError::ServiceError(service) => service.raw().status().is_server_error(),
        _ => false,
    };
    let (kind, advice) = advice(operation, table, RequestFailure::of(&error), server_fault);
    let message = format!("{operation} on table {}: {advice}", table.name);
    StoreError::new(kind, RequestError::with_source(message, error))
}

/// The store's own time limit has passed, not the SDK's.
pub(super) fn timed_out(operation: &'static str, table: &str, limit: Duration) -> StoreError {
    store_error(
        StoreErrorKind::Unavailable,
        format!("{operation} on table {table}: no answer within {limit:?}"),
    )
}

/// Creates an error of the store without an error of the SDK.
pub fn store_error(kind: StoreErrorKind, message: impl Into<String>) -> StoreError {
    StoreError::new(kind, RequestError::new(message))
}

/// Reports a column that cannot be read, with at most the first 200 characters of `found`.
pub fn corrupt_column(key: &str, column: &str, found: impl fmt::Display) -> StoreError {
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(LONGEST_VALUE) {
        found.truncate(end);
        found.push_str(" and more");
    }
    store_error(StoreErrorKind::Corrupt, format!("column {column:?} of item {key:?} is {found}"))
}

const LONGEST_VALUE: usize = 200;

fn advice(
    operation: &'static str,
    table: &Table,
    failure: RequestFailure<'_>,
    server_fault: bool,
) -> (StoreErrorKind, String) {
    match failure {
        RequestFailure::TimedOut
        | RequestFailure::NotReached
        | RequestFailure::UnreadableAnswer => (StoreErrorKind::Unavailable, failure.to_string()),
        RequestFailure::NoCredentials | RequestFailure::NotBuilt => {
            (StoreErrorKind::Misconfigured, failure.to_string())
        }
        RequestFailure::CredentialsRefused(_) => (StoreErrorKind::Denied, failure.to_string()),
        RequestFailure::Throttled { code, .. } => (
            StoreErrorKind::Throttled,
            format!("throttled ({code}): give the table more capacity, or bill it on demand"),
        ),
        RequestFailure::Service { code, message } => {
            service_advice(operation, table, code, message, server_fault)
        }
    }
}

fn service_advice(
    operation: &'static str,
    table: &Table,
    code: &str,
    message: &str,
    server_fault: bool,
) -> (StoreErrorKind, String) {
    match code {
        "AccessDeniedException" => (
            StoreErrorKind::Denied,
            format!("access denied: allow the action dynamodb:{operation} on this table"),
        ),
        "ResourceNotFoundException" => (
            StoreErrorKind::Misconfigured,
            format!(
                "table {} does not exist in this account and region: {}",
                table.name, table.advice.missing
            ),
        ),
        "ValidationException" if message.contains("Expression size") => (
            StoreErrorKind::Refused,
            "too many attributes for one write: an expression has at most 4 KB. Create the item \
             with fewer than 100 attributes, and add the rest by updates"
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
        // The other write is another program's transaction, or another region's write.
        "TransactionConflictException" | "ReplicatedWriteConflictException" => {
            (StoreErrorKind::Unavailable, format!("conflict with another write ({code})"))
        }
        _ if server_fault => (StoreErrorKind::Unavailable, format!("DynamoDB failed ({code})")),
        _ => (StoreErrorKind::Misconfigured, RequestFailure::Service { code, message }.to_string()),
    }
}

/// DynamoDB's errors for a key that does not match the table's schema. The text depends on the operation.
const OTHER_KEY: [&str; 4] = [
    "does not match the schema",
    "One of the required keys was not given a value",
    "Type mismatch for key",
    "The number of conditions on the keys is invalid",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_client::table::Advice;

    fn advice_on(code: &str, message: &str, server_fault: bool) -> (StoreErrorKind, String) {
        let remedies = Advice { missing: "make it", other_key: "use another" };
        let (name, key) = ("leases".to_owned(), "lease_key".to_owned());
        let table = Table { name, key, advice: remedies };
        let failure = RequestFailure::of_service(code, message);
        advice("UpdateItem", &table, failure, server_fault)
    }

    #[test]
    fn each_error_code_has_its_kind() {
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
            assert_eq!(advice_on(code, message, server_fault).0, expected, "{code}");
        }
    }

    #[test]
    fn corrupt_value_is_cut_after_200_characters() {
        let message =
            |found: &str| corrupt_column("a", "token", found).source().unwrap().to_string();

        assert_eq!(message("12.5, not a whole number").matches("12.5, not a whole").count(), 1);
        let long = message(&format!("not a number: {}", "ß".repeat(100_000)));
        assert!(long.contains("\"token\" of item \"a\" is not a number: ß"), "{long}");
        assert!(long.ends_with("ß and more") && long.chars().count() < 250, "{long}");
    }

    #[test]
    fn error_names_the_remedy() {
        let text = |code, message| advice_on(code, message, false).1;

        assert!(text("AccessDeniedException", "").contains("dynamodb:UpdateItem"));
        assert!(text("ResourceNotFoundException", "").ends_with("region: make it"));
        for other in [
            "The provided key element does not match the schema",
            "One or more parameter values were not valid: One of the required keys was not given a value",
            "One or more parameter values were not valid: Type mismatch for key lease_key expected: \
             N actual: S",
            "The number of conditions on the keys is invalid",
        ] {
            let (kind, advice) = advice_on("ValidationException", other, false);
            assert!(advice.ends_with("than lease_key: use another"), "{other}: {advice}");
            assert_eq!(kind, StoreErrorKind::Misconfigured);
        }
    }
}
