//! State and settings that all children of a worker share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ChildCommand;
use super::end_message::EndMessages;

/// State and settings that all children of a worker share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// Tracks the tasks that exchange messages with children, one task per child.
    pub(super) tasks: TaskTracker,
    /// Cancelled when the first child has failed.
    pub(super) failed: CancellationToken,
    pub(super) end_messages: Arc<EndMessages>,
}

/// The command of the children and their timeouts.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) command: Arc<ChildCommand>,
    /// The time limit for a child to read a message, and then to answer it. `None` means no limit.
    pub(super) answer_timeout: Option<Duration>,
    /// The time for each step of a child's end.
    pub(super) exit_timeout: Duration,
}
