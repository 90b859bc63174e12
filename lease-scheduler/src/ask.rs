//! How long a table is waited for.

use std::future::Future;
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};

/// Waits for a table's answer, but no longer than `limit`: one that hangs is one that did not
/// answer.
pub(crate) async fn within<T>(
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
