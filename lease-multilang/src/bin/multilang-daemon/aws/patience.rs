//! Repeats the first requests of the daemon while a service does not answer.

use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::credentials::Credentials;
use crate::configuration::table::WORKERS_SUFFIX;
use crate::failure::Failure;

#[derive(Debug, Error)]
#[error(
    "the tables in DynamoDB, tableName = {name} and {name}{suffix}, {address}, cannot be used",
    suffix = WORKERS_SUFFIX
)]
pub(super) struct NotReady {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) source: StoreError,
}

/// Repeats `attempt` for five minutes while its error may pass. Amazon's daemon also tries for minutes, and
/// orchestrators start a daemon before its network.
pub(super) async fn with_patience<A, C>(
    mut attempt: impl FnMut() -> A + Send,
    mut credentials: impl FnMut() -> C + Send,
) -> Result<(), Failure>
where
    A: Future<Output = Result<(), NotReady>> + Send,
    C: Future<Output = Credentials> + Send,
{
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    let mut is_repeated = false;
    let attempts = async {
        loop {
            let Err(error) = attempt().await else { return Ok(()) };
            if error.source.kind() == StoreErrorKind::Denied {
                return Err(Failure::other(error));
            }
            let failure = match credentials().await {
                Credentials::Found if error.source.is_retryable() => Failure::other(error),
                // The credentials may have come after the attempt. A second attempt has them.
                Credentials::Found if !is_repeated => {
                    is_repeated = true;
                    continue;
                }
                Credentials::Found => return Err(Failure::other(error)),
                Credentials::NotReached(failure) => failure,
                Credentials::Missing(failure) => return Err(failure),
            };
            is_repeated = false;
            warn!(error = %failure, retry_in = ?pause, "daemon not started, retrying");
            last = Some(failure);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    match (timeout(PATIENCE, attempts).await, last) {
        (Ok(ended), _) => ended,
        (Err(_elapsed), Some(last)) => Err(last),
        // Each request has a time limit, so this attempt ends.
        (Err(_elapsed), None) => attempt().await.map_err(Failure::other),
    }
}

const PATIENCE: Duration = Duration::from_mins(5);

const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use StoreErrorKind::{Denied, Misconfigured, Unavailable};
    use tokio::time::Instant;

    use super::*;

    async fn after(
        outage: Duration,
        kind: StoreErrorKind,
        credentials: fn() -> Credentials,
    ) -> (bool, Duration) {
        let start = now();
        let attempt = || async {
            let (name, address) = (String::new(), String::new());
            let error = NotReady { name, address, source: StoreError::new(kind, "not reached") };
            if now() - start >= outage { Ok(()) } else { Err(error) }
        };
        let started = with_patience(attempt, || std::future::ready(credentials())).await;
        (started.is_ok(), now() - start)
    }

    fn found() -> Credentials {
        Credentials::Found
    }

    fn not_reached() -> Credentials {
        Credentials::NotReached(Failure::other("no answer"))
    }

    fn missing() -> Credentials {
        Credentials::Missing(Failure::other("none"))
    }

    #[expect(clippy::disallowed_methods, reason = "paused time of a test")]
    fn now() -> Instant {
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn daemon_starts_after_an_outage_of_minutes() {
        let minutes = Duration::from_mins(4);
        let (started, took) = after(minutes, Unavailable, found).await;

        assert!(started && took < minutes + LONGEST_PAUSE, "{took:?}");
    }

    /// The SDK reports missing credentials as a wrong setting.
    #[tokio::test(start_paused = true)]
    async fn daemon_starts_after_credentials_were_not_reached_for_minutes() {
        let minutes = Duration::from_mins(4);
        let (started, took) = after(minutes, Misconfigured, not_reached).await;

        assert!(started && took < minutes + LONGEST_PAUSE, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn longer_outage_ends_the_daemon() {
        let minutes = Duration::from_mins(6);
        let (started, took) = after(minutes, Unavailable, found).await;

        assert!(!started && took == PATIENCE, "{took:?}");
    }

    /// The SDK finds no credentials, and then the service that has them answers.
    #[tokio::test(start_paused = true)]
    async fn daemon_starts_if_credentials_come_after_an_attempt() {
        let mut attempts = 0;
        let attempt = || {
            attempts += 1;
            let source = StoreError::new(Misconfigured, "no credentials");
            let error = NotReady { name: String::new(), address: String::new(), source };
            std::future::ready(if attempts == 1 { Err(error) } else { Ok(()) })
        };

        let started = with_patience(attempt, || std::future::ready(found())).await;

        assert!(started.is_ok() && attempts == 2, "{attempts} attempts");
    }

    #[tokio::test(start_paused = true)]
    async fn failure_that_does_not_pass_ends_the_daemon_at_once() {
        let minute = Duration::from_mins(1);
        let at_once = (false, Duration::ZERO);

        assert_eq!(after(minute, Misconfigured, found).await, at_once);
        assert_eq!(after(minute, Denied, not_reached).await, at_once);
        assert_eq!(after(minute, Unavailable, missing).await, at_once);
    }
}
