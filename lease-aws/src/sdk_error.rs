//! Classifies failed requests of the AWS SDK by causes that all services share.

use std::error::Error;
use std::fmt;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

/// Classifies a failed request. `Display` prints the cause and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "for the crates of this repository")]
pub enum RequestFailure<'a> {
    /// The SDK's own time limit passed without an answer.
    TimedOut,
    /// The request did not reach the service.
    NotReached,
    /// The client has no credentials provider.
    NoCredentials,
    /// The SDK could not parse the answer.
    UnreadableAnswer,
    /// The SDK could not build the request.
    NotBuilt,
    /// The service throttled the request.
    Throttled {
        /// The service's name of the error.
        code: &'a str,
        /// The service's text. Empty if the answer has none.
        message: &'a str,
    },
    /// The service refused the credentials, with this code.
    CredentialsRefused(&'a str),
    /// The service answered with another error.
    Service {
        /// The service's name of the error. Empty if the answer has none.
        code: &'a str,
        /// The service's text. Empty if the answer has none.
        message: &'a str,
    },
}

impl<'a> RequestFailure<'a> {
    /// Classifies `error`.
    pub fn of<E, R>(error: &'a SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
        R: fmt::Debug + 'static,
    {
        match error {
            SdkError::TimeoutError(_) => Self::TimedOut,
            SdkError::DispatchFailure(failure)
                if (failure.is_other() || failure.is_user()) && lacks_credentials(error) =>
            {
                Self::NoCredentials
            }
            SdkError::DispatchFailure(_) => Self::NotReached,
            SdkError::ResponseError(_) => Self::UnreadableAnswer,
            SdkError::ServiceError(service) => {
                let error = service.err();
                let code = error.code().unwrap_or_default();
                Self::of_service(code, error.message().unwrap_or_default())
            }
            _ => Self::NotBuilt,
        }
    }

    /// Classifies an error that the service returned.
    ///
    /// DynamoDB and Kinesis have the same common errors:
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/CommonErrors.html>
    pub fn of_service(code: &'a str, message: &'a str) -> Self {
        match code {
            "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException"
            | "Throttling"
            | "TooManyRequestsException"
            | "LimitExceededException" => Self::Throttled { code, message },
            "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "IncompleteSignatureException"
            | "IncompleteSignature"
            | "MissingAuthenticationTokenException"
            | "MissingAuthenticationToken"
            | "InvalidClientTokenId"
            | "ExpiredTokenException"
            | "ExpiredToken" => Self::CredentialsRefused(code),
            _ => Self::Service { code, message },
        }
    }
}

impl fmt::Display for RequestFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no answer in time"),
            Self::NotReached => f.write_str("not reached"),
            Self::NoCredentials => {
                f.write_str("no credentials: give the client a credentials provider")
            }
            Self::UnreadableAnswer => f.write_str("the answer cannot be parsed"),
            Self::NotBuilt => f.write_str(
                "the request could not be built: check the client's region, endpoint and HTTP \
                 client",
            ),
            Self::Throttled { code, message } => write!(f, "throttled ({code}): {message}"),
            Self::CredentialsRefused(code) => {
                write!(f, "credentials refused ({code}): check them, and this machine's clock")
            }
            Self::Service { code, message } => write!(f, "refused ({code}): {message}"),
        }
    }
}

/// Only the error's text names missing credentials. A provider that failed to fetch credentials, or timed out, does
/// not match, because a retry may succeed.
fn lacks_credentials(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if NO_CREDENTIALS.iter().any(|part| text.contains(part)) {
            return true;
        }
        cause = error.source();
    }
    false
}

const NO_CREDENTIALS: [&str; 4] =
    ["was not enabled", "not properly configured", "no providers in chain", "no identity resolver"];

/// An error with a message of this project and, as its source, the SDK's error.
#[derive(Debug)]
pub struct RequestError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl RequestError {
    /// Creates an error without a source.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Creates an error with `message` and its `source`.
    pub fn with_source(
        message: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { message: message.into(), source: Some(Box::new(source)) }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for RequestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_codes_are_classified() {
        for (code, expected) in [
            (
                "ThrottlingException",
                RequestFailure::Throttled { code: "ThrottlingException", message: "text" },
            ),
            ("ExpiredToken", RequestFailure::CredentialsRefused("ExpiredToken")),
            ("Other", RequestFailure::Service { code: "Other", message: "text" }),
        ] {
            assert_eq!(RequestFailure::of_service(code, "text"), expected);
        }
    }

    #[test]
    fn missing_credentials_are_found_in_the_chain_of_causes() {
        let inner = RequestError::new("the credentials provider was not properly configured");
        let missing = RequestError::with_source("dispatch failure", inner);
        assert!(lacks_credentials(&missing));

        let absent = RequestError::new("there was no identity resolver for it");
        assert!(lacks_credentials(&absent));

        for late in ["the credentials provider timed out", "identity resolver timed out after 5s"] {
            assert!(!lacks_credentials(&RequestError::new(late)), "{late}");
        }
    }
}
