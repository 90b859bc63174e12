//! State and settings that all children of a worker share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ChildCommand;
use super::end_message::EndMessages;

#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// One task for each child.
    pub(super) tasks: TaskTracker,
    /// Cancelled when the first child has failed.
    pub(super) failed: CancellationToken,
    pub(super) end_messages: Arc<EndMessages>,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) command: Arc<ChildCommand>,
    /// The time limit for reading a message, and then for answering the message.
    pub(super) answer_timeout: Option<Duration>,
    /// The time limit for each step of a child's end.
    pub(super) exit_timeout: Duration,
}
