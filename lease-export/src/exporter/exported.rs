//! The results of an export and of scheduling one.

use lease_core::{Holder, LossCause};

use crate::error::ServiceError;
use crate::queue::JobId;

/// The result of [`schedule_job`](crate::Exporter::schedule_job).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the value says whether a job was enqueued"]
#[non_exhaustive]
pub enum Scheduled {
    /// The job is in the queue, and carries the lease.
    Enqueued(JobId),
    /// Export is disabled.
    Disabled,
    /// Another process exports, or a job is in the queue already.
    Held(Holder),
    /// The exporter lost the lease before enqueueing the job.
    Lost(LossCause),
}

/// The result of [`flush`](crate::Exporter::flush) and of [`export`](crate::Exporter::export).
#[derive(Debug)]
#[must_use = "the value says whether the export ran"]
#[non_exhaustive]
pub enum Flushed {
    /// The export has run.
    Done(Exported),
    /// Export is disabled.
    Disabled,
    /// Another process exports.
    Held(Holder),
}

/// The numbers of an export.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Exported {
    /// Events that the sink has taken. The buffer has removed them.
    pub sent: u64,
    /// Events that the sink has not taken, and that stay pending. If the sink refuses all requests,
    /// the export ends, and this count excludes the unsent events.
    pub failed: u64,
    /// Events that are larger than a record of the sink.
    pub too_large: u64,
    /// Events that the sink refused twice, each in a record of its own. The sink took other events
    /// between the two refusals.
    pub refused: u64,
    /// Events that failed in [several exports](crate::Exporter::with_max_failures), and then once more
    /// in a record of their own. An export counts only if the sink took other events in it.
    pub given_up: u64,
    /// Events that were too large, refused or given up, and went to the [dead
    /// letters](crate::DeadLetters).
    pub dead_lettered: u64,
    /// Events that were too large, refused or given up, and were [set
    /// aside](crate::EventBuffer::set_aside), since the exporter has no dead letters.
    pub set_aside: u64,
    /// Events that were collected from buckets.
    pub collected: u64,
    /// Bucket entries that a filter of the [pipeline](crate::Pipeline) left out.
    pub filtered: u64,
    /// Bucket entries that made no event.
    pub bad: u64,
    /// The sink's last error, if a request failed as a whole.
    pub sink_error: Option<ServiceError>,
    /// Why some closed buckets were not collected. The next job collects these buckets. The error did
    /// not stop this export from sending pending events.
    pub source_error: Option<ServiceError>,
}

/// The result of [`job_finished`](crate::Exporter::job_finished).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the lease was the job's or it was not")]
pub enum JobFinished {
    /// The job had the lease. The key is free now.
    Freed,
    /// The job has lost the lease. Nothing was changed.
    NotOurs,
}
