//! The factory of record processors. Each processor runs one child process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lease_kinesis::{ProcessorFactory, RecordProcessor, ShardContext};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ChildCommand;
use super::processor::ChildProcessor;
use super::shared::{Settings, Shared};

/// Runs one child process for each shard that a worker obtains. Clones share the same children.
///
/// # Examples
///
/// ```
/// use lease_kinesis::{SimStream, Worker};
/// use lease_memory::MemoryStore;
/// use lease_multilang::daemon::Children;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let children = Children::new("python3 processor.py".parse()?);
/// let (table, stream) = (MemoryStore::new(), SimStream::new(1));
/// let worker = Worker::builder("orders", table, stream, children.clone()).build()?;
/// let handle = worker.handle();
/// let running = tokio::spawn(worker.run());
///
/// handle.stop(); // on SIGTERM, for example
/// running.await??;
/// children.all_ended().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Children {
    shared: Shared,
}

impl Children {
    /// Starts each child with `command`.
    pub fn new(command: ChildCommand) -> Self {
        let (command, exit_timeout) = (Arc::new(command), Duration::from_secs(5));
        let settings = Settings { command, answer_timeout: None, exit_timeout };
        Self {
            shared: Shared {
                settings,
                tasks: TaskTracker::new(),
                failed: CancellationToken::new(),
                end_messages: Arc::default(),
            },
        }
    }

    /// Kills a child that takes longer than `timeout` to read a message, or to answer the message. The time
    /// starts again with the reply to each checkpoint. By default, a child may take any time, as under
    /// Amazon's daemon.
    ///
    /// A child that keeps sending messages without reading any is always killed.
    #[must_use]
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.shared.settings.answer_timeout = Some(timeout);
        self
    }

    /// Gives a child `timeout` for each step of its end. The steps are to finish its action or read its
    /// messages, to answer `leaseLost`, and to exit. Defaults to 5 s.
    #[must_use]
    pub fn with_exit_timeout(mut self, timeout: Duration) -> Self {
        self.shared.settings.exit_timeout = timeout;
        self
    }

    /// Waits until a child has failed.
    ///
    /// # Cancel safety
    ///
    /// Safe: call it again.
    pub async fn child_failed(&self) {
        self.shared.failed.cancelled().await;
    }

    /// Waits until all children have ended. Call it after the worker has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: call it again.
    pub async fn all_ended(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl ProcessorFactory for Children {
    fn processor(&self, _shard: &ShardContext) -> Box<dyn RecordProcessor> {
        Box::new(ChildProcessor::new(self.shared.clone()))
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}
