//! The events that an exporter reports, for the application's metrics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{Clock, Moment};
use parking_lot::Mutex;
use tracing::error;

use crate::dead_letters::Unsendable;
use crate::exporter::error::ExportError;

/// Receives the events of an exporter. Each method does nothing by default.
///
/// The exporter's tasks call these methods: keep them short, and do not block. The exporter logs a panic, and
/// continues. The crates `lease-metrics` and `lease-opentelemetry` implement this trait.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use lease_export::{ExportMetrics, SentBatch};
///
/// #[derive(Debug, Default)]
/// struct Sent(AtomicU64);
///
/// impl ExportMetrics for Sent {
///     fn batch(&self, batch: &SentBatch) {
///         self.0.fetch_add(batch.sent, Ordering::Relaxed);
///     }
/// }
/// ```
pub trait ExportMetrics: fmt::Debug + Send + Sync + 'static {
    /// An export began: this process has the lease. Exactly one call of [`ended`](Self::ended) follows, also if the
    /// export is dropped.
    fn began(&self) {}

    /// An export ended after `took`.
    fn ended(&self, took: Duration, end: ExportEnd) {
        let _ = (took, end);
    }

    /// The exporter has sent a batch, with all retries.
    fn batch(&self, batch: &SentBatch) {
        let _ = batch;
    }

    /// The sink never takes an event, because of `why`.
    fn rejected(&self, why: &Unsendable, to: RejectedTo) {
        let _ = (why, to);
    }

    /// Closed buckets were collected: they made `events`, and had `bad` entries that made no event.
    fn collected(&self, events: u64, bad: u64) {
        let _ = (events, bad);
    }

    /// The number of pending events, and the age of the oldest of them. Called after each call of the exporter that
    /// might export, once a minute while a process finds no job, and by [`Exporter::measure_backlog`](crate::Exporter::measure_backlog).
    fn backlog(&self, pending: u64, oldest: Option<Duration>) {
        let _ = (pending, oldest);
    }
}

/// How an export ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportEnd {
    /// The export ran to its end. Some events may be pending, because the sink did not take them.
    Done,
    /// The export lost its lease, or the buffer did not answer.
    Failed,
    /// The caller dropped the export.
    Dropped,
}

impl ExportEnd {
    /// All ends, to register them before the first event.
    pub const ALL: &'static [Self] = &[Self::Done, Self::Failed, Self::Dropped];

    /// The name in lower case, for the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// Where an event went that the sink never takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectedTo {
    /// The event went to the [dead letters](crate::DeadLetters).
    DeadLetters,
    /// The buffer [set the event aside](crate::EventBuffer::set_aside).
    Aside,
    /// The event stays pending, because the dead letters or the buffer did not answer, or because another export has
    /// started. The next export tries again.
    Pending,
}

impl RejectedTo {
    /// All destinations, to register them before the first event.
    pub const ALL: &'static [Self] = &[Self::DeadLetters, Self::Aside, Self::Pending];

    /// The name in lower case, for the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeadLetters => "dead_letters",
            Self::Aside => "aside",
            Self::Pending => "pending",
        }
    }
}

/// The result of one batch.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SentBatch {
    /// Records of the sink in this batch.
    pub records: u64,
    /// Events that the sink has taken.
    pub sent: u64,
    /// Events that the sink has not taken. This count excludes events that the sink refused. The counted events stay
    /// pending, unless this was the last of [several exports](crate::Exporter::with_max_failures).
    pub failed: u64,
    /// The time of all requests and retries.
    pub took: Duration,
    /// Whether no request failed as a whole.
    pub is_ok: bool,
}

/// The application's metrics, if it has any. A panic in a method ends no export.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reports {
    pub(crate) metrics: Option<Arc<dyn ExportMetrics>>,
    /// When this process last measured the backlog.
    pub(crate) measured: Arc<Mutex<Option<Moment>>>,
}

/// An export that runs. Reports its end when it is dropped.
pub(crate) struct OpenExport<'a> {
    reports: &'a Reports,
    clock: &'a dyn Clock,
    began: Moment,
    end: ExportEnd,
}

impl Reports {
    pub(crate) fn report(&self, call: impl FnOnce(&dyn ExportMetrics)) {
        let Some(metrics) = &self.metrics else { return };
        if catch_unwind(AssertUnwindSafe(|| call(&**metrics))).is_err() {
            error!("metrics panicked");
        }
    }
}

impl<'a> OpenExport<'a> {
    pub(crate) fn begin(reports: &'a Reports, clock: &'a dyn Clock) -> Self {
        reports.report(ExportMetrics::began);
        Self { reports, clock, began: clock.now(), end: ExportEnd::Dropped }
    }

    pub(crate) fn end<T>(mut self, ended: Result<T, ExportError>) -> Result<T, ExportError> {
        self.end = if ended.is_ok() { ExportEnd::Done } else { ExportEnd::Failed };
        ended
    }
}

impl Drop for OpenExport<'_> {
    fn drop(&mut self) {
        let took = self.clock.now().since(self.began);
        self.reports.report(|metrics| metrics.ended(took, self.end));
    }
}
