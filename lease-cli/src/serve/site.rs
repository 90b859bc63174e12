//! What the handlers of requests share.

use std::sync::Arc;
use std::time::Duration;

use lease_scheduler::JobControl;
use lease_store::AnyStore;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::feed::Feed;
use super::token::Token;
use super::views::switches::ByKey;

/// What the handlers need.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) store: AnyStore,
    /// `None` if the store keeps no records, as for the two feeds.
    pub(super) control: Option<JobControl>,
    /// The switches of the command line. Empty if the store keeps no records.
    pub(super) switches: ByKey,
    pub(super) leases: Feed,
    pub(super) jobs: Option<Feed>,
    /// `None` also without the name of an application.
    pub(super) shards: Option<Feed>,
    /// `None` without switches.
    pub(super) switch_rows: Option<Feed>,
    /// All keys and jobs that the page shows and changes start with it.
    pub(super) prefix: String,
    /// How often the store is read.
    pub(super) interval: Duration,
    /// A permit for each browser that may show rows.
    pub(super) streams: Arc<Semaphore>,
    /// The changes that run.
    pub(super) changes: TaskTracker,
    /// `None` if the page changes nothing.
    pub(super) token: Option<Arc<Token>>,
}

/// Browsers that a page shows rows to. Each one may hold a copy of the rows that it has not taken yet.
pub(super) const STREAMS: usize = 32;
