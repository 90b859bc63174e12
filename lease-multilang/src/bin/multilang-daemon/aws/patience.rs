//! Repeats the first requests of the daemon while DynamoDB does not answer.

use std::error::Error;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::warn;

use super::table::NotReady;

/// Repeats `attempt` for five minutes while its error may pass. Amazon's daemon also tries for minutes, and
/// orchestrators start a daemon before its network.
pub(super) async fn with_patience<A, P>(
    mut attempt: impl FnMut() -> A + Send,
    mut may_pass: impl FnMut() -> P + Send,
) -> Result<(), NotReady>
where
    A: Future<Output = Result<(), NotReady>> + Send,
    P: Future<Output = bool> + Send,
{
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    let attempts = async {
        loop {
            let error = match attempt().await {
                Err(error) if error.source.is_retryable() && may_pass().await => error,
                ended => return ended,
            };
            warn!(error = &error as &dyn Error, retry_in = ?pause, "daemon not started, retrying");
            last = Some(error);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    match (timeout(PATIENCE, attempts).await, last) {
        (Ok(ended), _) => ended,
        (Err(_elapsed), Some(last)) => Err(last),
        // Each request has a time limit, so this attempt ends.
        (Err(_elapsed), None) => attempt().await,
    }
}

const PATIENCE: Duration = Duration::from_mins(5);

const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use lease_core::{StoreError, StoreErrorKind};
    use tokio::time::Instant;

    use super::*;

    async fn after(outage: Duration, kind: StoreErrorKind, may_pass: bool) -> (bool, Duration) {
        let start = now();
        let attempt = || async {
            let (name, address) = (String::new(), String::new());
            let error = NotReady { name, address, source: StoreError::new(kind, "not reached") };
            if now() - start >= outage { Ok(()) } else { Err(error) }
        };
        let started = with_patience(attempt, || async { may_pass }).await;
        (started.is_ok(), now() - start)
    }

    #[expect(clippy::disallowed_methods, reason = "paused time of a test")]
    fn now() -> Instant {
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn daemon_starts_after_an_outage_of_minutes() {
        let (started, took) =
            after(Duration::from_mins(4), StoreErrorKind::Unavailable, true).await;

        assert!(started && took < Duration::from_mins(4) + LONGEST_PAUSE, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn longer_outage_ends_the_daemon() {
        let (started, took) =
            after(Duration::from_mins(6), StoreErrorKind::Unavailable, true).await;

        assert!(!started && took <= PATIENCE, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn failure_that_does_not_pass_ends_the_daemon_at_once() {
        let minute = Duration::from_mins(1);
        let without_rights = after(minute, StoreErrorKind::Misconfigured, true).await;
        let without_credentials = after(minute, StoreErrorKind::Unavailable, false).await;

        assert_eq!(without_rights, (false, Duration::ZERO));
        assert_eq!(without_credentials, (false, Duration::ZERO));
    }
}
