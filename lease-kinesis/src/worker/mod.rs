//! A worker, its handle, and the tasks that it runs.
//!
//! Start here with [`Worker`]. `builder` sets it up. `running` is its loop: it lists the table at each tick
//! and executes its part of the plan. `shard_task` reads one shard and calls its processor. `expected`
//! watches shards that other workers will hand over. `missing_shards` delays further attempts at a shard that
//! the stream does not have. `view` reads only changed rows, for a worker under a session. `coexistence` is for
//! workers of other libraries on the same table. `parts` holds the state that a worker's tasks share.
//! `simulated` sets the clock and the seed of a simulation.

pub(crate) mod builder;
pub(crate) mod coexistence;
mod error;
mod expected;
mod missing_shards;
mod parts;
mod running;
mod shard_task;
#[cfg(feature = "simulation")]
mod simulated;
mod view;

use std::fmt;

use lease_core::Lessee;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

use crate::status::{Status, StatusRegistry};
use crate::worker::coexistence::Coexistence;
pub use crate::worker::error::WorkerError;
use crate::worker::parts::WorkerParts;
use crate::worker::running::Running;

/// Reads its share of an application's shards, alongside the application's other workers.
///
/// Workers have no leader. Each worker lists the table at each tick (a third of the ttl), and computes the
/// same [plan](crate::plan). The worker obtains the free shards that the plan assigns to this worker. The
/// worker hands over surplus shards after the current batch.
///
/// # Examples
///
/// This worker reads a simulated stream:
///
/// ```
/// use async_trait::async_trait;
/// use lease_kinesis::{
///     Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream,
///     Worker,
/// };
/// use lease_memory::MemoryStore;
/// use tokio::sync::mpsc;
///
/// struct Payments {
///     paid: mpsc::UnboundedSender<String>,
/// }
///
/// #[async_trait]
/// impl RecordProcessor for Payments {
///     async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
///         for record in &batch.records {
///             let payment = String::from_utf8_lossy(&record.data).into_owned();
///             self.paid.send(payment).ok();
///         }
///         checkpointer.checkpoint().await.into()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stream = SimStream::new(4);
/// stream.put("customer 7", "12.50");
/// let (paid, mut payments) = mpsc::unbounded_channel();
/// let factory = move |_: &ShardContext| Payments { paid: paid.clone() };
/// let worker = Worker::builder("payments", MemoryStore::new(), stream, factory)
///     .with_initial_position(InitialPosition::TrimHorizon)
///     .build()?;
/// let handle = worker.handle();
/// let running = tokio::spawn(worker.run());
///
/// assert_eq!(payments.recv().await.as_deref(), Some("12.50"));
/// println!("{} shards", handle.status().shards.len());
/// handle.stop();
/// running.await??;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    parts: WorkerParts,
    coexistence: Option<Box<dyn Coexistence>>,
}

/// Stops a running worker, and reads its status.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    status: StatusRegistry,
    stopping: CancellationToken,
}

impl Worker {
    pub(crate) fn new(parts: WorkerParts, coexistence: Option<Box<dyn Coexistence>>) -> Self {
        Self { parts, coexistence }
    }

    #[cfg(test)]
    pub(crate) fn into_parts(self) -> WorkerParts {
        self.parts
    }

    /// Returns a handle that stops this worker and reads its status.
    pub fn handle(&self) -> WorkerHandle {
        let WorkerParts { status, stopping, .. } = &self.parts;
        WorkerHandle { status: status.clone(), stopping: stopping.clone() }
    }

    /// Returns the worker's name.
    pub fn name(&self) -> &Lessee {
        &self.parts.me.name
    }

    /// Reads shards until the worker is [stopped](WorkerHandle::stop).
    ///
    /// The worker retries after failures. The failure of one shard does not affect other shards.
    ///
    /// # Errors
    ///
    /// [`WorkerError::Stopped`] if a processor stopped the worker. [`WorkerError::Store`] if the store
    /// rejects the worker's own row at the start, with an error that is not retryable.
    ///
    /// # Cancel safety
    ///
    /// If the caller drops the future, the worker stops reading and releases its leases in the background.
    /// Later readers start at the last checkpoints.
    pub async fn run(self) -> Result<(), WorkerError> {
        let WorkerParts { settings, me, .. } = &self.parts;
        let span = info_span!("worker", application = %settings.application, name = %me.name);
        Running::new(self.parts, self.coexistence).run().instrument(span).await
    }
}

impl WorkerHandle {
    /// Asks the worker to hand over all of its shards, and then to end, within its grace time.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Returns the worker's status.
    pub fn status(&self) -> Status {
        self.status.status()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.parts.me.name).finish_non_exhaustive()
    }
}
