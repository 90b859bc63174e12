//! Whether requests have credentials, and whether waiting for credentials may help.

use crate::aws::clients::Clients;
use crate::failure::Failure;

#[derive(Debug)]
#[cfg_attr(
    all(not(feature = "aws"), not(test)),
    expect(dead_code, reason = "without the feature `aws`, the environment has the credentials")
)]
pub(crate) enum Credentials {
    Found,
    /// A service that provides credentials is not reached: the metadata of an instance, the endpoint of a container,
    /// or the Security Token Service (STS). An orchestrator may start a daemon before its network.
    NotReached(Failure),
    /// No source has credentials, or a service refused to provide them.
    Missing(Failure),
}

#[cfg(not(feature = "aws"))]
impl Clients {
    #[expect(clippy::unused_async, reason = "async with the feature `aws`")]
    pub(crate) async fn credentials(&self) -> Credentials {
        Credentials::Found
    }
}

#[cfg(feature = "aws")]
mod sources {
    use std::error::Error;
    use std::time::Duration;

    use aws_config::meta::ProviderChainError;
    use aws_sdk_dynamodb::config::ProvideCredentials;
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use tokio::time::timeout;

    use super::{Clients, Credentials, Failure};
    use crate::aws::profiles;
    use crate::failure::in_one_line;

    impl Clients {
        /// Asks for credentials. A request without credentials fails like one that gets no answer.
        pub(crate) async fn credentials(&self) -> Credentials {
            let Some(provider) = self.provider() else { return Credentials::Found };
            match timeout(LIMIT, provider.provide_credentials()).await {
                Ok(Ok(_credentials)) => Credentials::Found,
                Ok(Err(error)) => {
                    let is_not_reached = is_not_reached(&error);
                    let failure = none_found(error).await;
                    if is_not_reached {
                        Credentials::NotReached(failure)
                    } else {
                        Credentials::Missing(failure)
                    }
                }
                Err(_elapsed) => {
                    let text = format!("no service has provided credentials within {LIMIT:?}");
                    Credentials::NotReached(Failure::other(text))
                }
            }
        }
    }

    /// Whether a request for credentials got no answer.
    fn is_not_reached<E: Error + 'static>(error: &E) -> bool {
        let mut cause = Some(error as &(dyn Error + 'static));
        while let Some(error) = cause {
            // The chain of all sources does not return their errors as its `source`.
            if let Some(chain) = error.downcast_ref::<ProviderChainError<E>>() {
                return chain.attempts().iter().any(|attempt| is_not_reached(attempt.error()));
            }
            if let Some(error) = error.downcast_ref::<ConnectorError>() {
                return !error.is_user();
            }
            if error.to_string().contains(TIMED_OUT) {
                return true;
            }
            cause = error.source();
        }
        false
    }

    async fn none_found(error: impl Error + Send + Sync + 'static) -> Failure {
        // The SDK lists one source per line.
        let source = in_one_line(&Failure::other(error).to_string());
        let profiles = profiles::unreadable().await;
        Failure::other(NoCredentials { profiles, source: source.into() })
    }

    #[derive(Debug, thiserror::Error)]
    #[error(
        "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or \
         give this machine a role{profiles}"
    )]
    struct NoCredentials {
        profiles: String,
        source: Box<dyn Error + Send + Sync>,
    }

    /// The text of `SdkError::TimeoutError`, whose type depends on the request.
    const TIMED_OUT: &str = "request has timed out";

    /// The SDK waits for each answer of a metadata service for at most a second, and repeats some requests.
    const LIMIT: Duration = Duration::from_secs(15);

    #[cfg(test)]
    mod tests {
        use aws_smithy_runtime_api::client::result::SdkError;

        use super::*;

        type Refusal = SdkError<std::io::Error, ()>;

        #[test]
        fn request_without_answer_is_not_reached() {
            let refused = || std::io::Error::other("connection refused").into();
            let failed = |error: ConnectorError| Refusal::dispatch_failure(error);

            assert!(is_not_reached(&failed(ConnectorError::io(refused()))));
            assert!(is_not_reached(&failed(ConnectorError::timeout(refused()))));
            assert!(is_not_reached(&Refusal::timeout_error("late")));
        }

        #[test]
        fn refusal_is_an_answer() {
            let refusal = Refusal::service_error(std::io::Error::other("AccessDenied"), ());
            let invalid = Refusal::construction_failure("no region");

            assert!(!is_not_reached(&refusal) && !is_not_reached(&invalid));
        }
    }
}
