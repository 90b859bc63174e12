//! What all children of a worker share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ChildCommand;
use super::end_message::EndMessages;

/// What all children of a worker share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// One task per child.
    pub(super) tasks: TaskTracker,
    /// Cancelled once a child has failed.
    pub(super) failed: CancellationToken,
    pub(super) end_messages: Arc<EndMessages>,
}

/// How children are started and ended.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) command: Arc<ChildCommand>,
    /// For a child to read a message, and again to answer it; `None` without a limit.
    pub(super) answer_timeout: Option<Duration>,
    /// For each step of a child's end.
    pub(super) exit_timeout: Duration,
}
