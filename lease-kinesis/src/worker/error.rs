//! The errors that end a worker.

use lease_core::StoreError;
use thiserror::Error;

use crate::processor::ProcessorError;

/// Reports why a worker ended without a request to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A processor returned [`StopWorker`](crate::Outcome::StopWorker).
    #[error("a processor stopped the worker")]
    Stopped(#[source] ProcessorError),
    /// The store rejects the worker's own row until an operator corrects the cause.
    #[error("worker could not start")]
    Store(#[from] StoreError),
}
