//! What became of an export, and of asking for one.

use lease_core::{Holder, LossCause};

use crate::error::ServiceError;
use crate::queue::JobId;

/// What became of scheduling a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "whether a job was enqueued is the answer"]
#[non_exhaustive]
pub enum Scheduled {
    /// A job is in the queue, and the lease with it.
    Enqueued(JobId),
    /// Export is not enabled.
    Disabled,
    /// Somebody exports, or a job waits already.
    Held(Holder),
    /// The lease was lost before the job could be enqueued.
    Lost(LossCause),
}

/// What became of a flush.
#[derive(Debug)]
#[must_use = "whether anything was sent is the answer"]
#[non_exhaustive]
pub enum Flushed {
    /// This was sent.
    Done(Exported),
    /// Export is not enabled.
    Disabled,
    /// Somebody else exports.
    Held(Holder),
}

/// What an export did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Exported {
    /// How many events the sink has taken, and are pending no more.
    pub sent: u64,
    /// How many events the sink has not taken, and stay pending. Where it refuses whatever is sent to
    /// it, the export ends, and what it had not come to is not counted.
    pub failed: u64,
    /// How many events fit into no record of the sink.
    pub too_large: u64,
    /// How many events the sink refused for good, each alone, and once more after it took others.
    pub refused: u64,
    /// How many events the sink did not take in [so many
    /// exports](crate::Exporter::with_most_failures) that sent others.
    pub given_up: u64,
    /// How many of those three kinds went to the [dead letters](crate::DeadLetters), and are
    /// pending no more.
    pub buried: u64,
    /// How many of them were [set aside](crate::EventBuffer::set_aside) in the buffer, since
    /// there are no dead letters, and are pending no more.
    pub set_aside: u64,
    /// How many events came from buckets.
    pub collected: u64,
    /// How many entries of buckets were left out by a filter of the [pipeline](crate::Pipeline).
    pub filtered: u64,
    /// How many entries of buckets were no events.
    pub bad: u64,
    /// What the sink said last, where a request failed as a whole.
    pub sink_error: Option<ServiceError>,
    /// Why not all closed buckets were collected, where something failed: what was not is where it
    /// was, and tried again by the next job. What was pending was sent all the same.
    pub source_error: Option<ServiceError>,
}

/// What became of a job that was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the lease was the job's or it was not")]
pub enum JobFinished {
    /// The lease was the job's, and is free.
    Freed,
    /// The lease is not the job's any more: nothing was changed.
    NotOurs,
}
