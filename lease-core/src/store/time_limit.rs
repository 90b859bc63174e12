//! The time limit of a request to a store.

use std::future::Future;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// Waits for a store's answer, at most for `limit`.
///
/// For code that calls a store directly. A [`Locker`](crate::Locker) limits its requests to
/// [`LeaseOptions::request_timeout`](crate::LeaseOptions::request_timeout).
///
/// # Errors
///
/// The errors of the store, and [`Unavailable`](StoreErrorKind::Unavailable) after `limit`.
///
/// # Cancel safety
///
/// As for `answer`, which is dropped: the store may still apply the request.
pub async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            Err(StoreError::new(StoreErrorKind::Unavailable, format!("no answer within {limit:?}")))
        }
    }
}
