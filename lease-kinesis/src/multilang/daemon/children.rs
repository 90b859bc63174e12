//! All children of a worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ChildCommand;
use super::ends::Ends;
use super::processor::ChildProcessor;
use crate::processor::{ProcessorFactory, RecordProcessor, ShardContext};

/// Runs one child for each shard that a worker obtains. Clones run the same.
#[derive(Clone)]
pub struct Children {
    pub(super) settings: Settings,
    pub(super) tasks: TaskTracker,
    pub(super) failed: CancellationToken,
    pub(super) ends: Arc<Ends>,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) command: Arc<ChildCommand>,
    pub(super) answer_limit: Option<Duration>,
    pub(super) farewell: Duration,
}

impl Children {
    /// Each child is a run of `command`.
    pub fn of(command: ChildCommand) -> Self {
        let (command, farewell) = (Arc::new(command), Duration::from_secs(5));
        let settings = Settings { command, answer_limit: None, farewell };
        Self {
            settings,
            tasks: TaskTracker::new(),
            failed: CancellationToken::new(),
            ends: Arc::default(),
        }
    }

    /// Kills a child that takes longer than `limit` to read what it is told, or then to answer: from
    /// each action, and from the reply to each checkpoint on. Without this, it may take as long as it
    /// likes, as in Amazon's daemon; but not go on talking, and read nothing meanwhile.
    #[must_use]
    pub fn with_answer_limit(mut self, limit: Duration) -> Self {
        self.settings.answer_limit = Some(limit);
        self
    }

    /// Gives a child `farewell` to come to an end: once its lease is lost, to finish what it is
    /// doing, or to read what it has not read; then to answer that it knows of that; then to exit.
    /// By default 5 s each.
    #[must_use]
    pub fn with_farewell(mut self, farewell: Duration) -> Self {
        self.settings.farewell = farewell;
        self
    }

    /// Completes once a child has failed: for those who then want to end.
    pub async fn one_has_failed(&self) {
        self.failed.cancelled().await;
    }

    /// Completes once no child is left, and the worker that made them has ended.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, and called again.
    pub async fn all_ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl ProcessorFactory for Children {
    fn processor(&self, shard: &ShardContext) -> Box<dyn RecordProcessor> {
        Box::new(ChildProcessor::new(self.clone(), shard.shard.clone()))
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("settings", &self.settings).finish_non_exhaustive()
    }
}
