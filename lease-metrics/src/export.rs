//! The adapter between the events of an exporter and the `metrics` facade.

use std::time::Duration;

use lease_export::{ExportEnd, ExportMetrics, RejectedTo, SentBatch, Unsendable};
use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};

use crate::names;

/// Reports the events of an exporter of `lease-export` to the recorder of the `metrics` facade. The label `exporter` is
/// the name that you give.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_export::Exporter;
/// use lease_metrics::ExporterMetrics;
///
/// // First install a recorder, such as that of metrics-exporter-prometheus.
/// fn observed(exporter: Exporter) -> Exporter {
///     exporter.with_metrics(Arc::new(ExporterMetrics::new("orders")))
/// }
/// # drop(observed as fn(_) -> _);
/// ```
#[derive(Debug)]
pub struct ExporterMetrics {
    pending: Gauge,
    oldest: Gauge,
    running: Gauge,
    exports: Vec<(ExportEnd, Histogram)>,
    batch_ok: Histogram,
    batch_error: Histogram,
    records: Counter,
    sent: Counter,
    failed: Counter,
    rejected: Vec<((&'static str, RejectedTo), Counter)>,
    collected: Counter,
    bad: Counter,
}

impl ExporterMetrics {
    /// Registers the metrics of an exporter, with `exporter` as the label. Install the recorder before.
    pub fn new(exporter: impl Into<SharedString>) -> Self {
        names::describe_export();
        let exporter = exporter.into();
        let count = |name: &'static str| counter!(name, "exporter" => exporter.clone());
        let now = |name: &'static str| gauge!(name, "exporter" => exporter.clone());
        let export = |end: ExportEnd| histogram!(names::EXPORT_SECONDS, "exporter" => exporter.clone(), "end" => end.name());
        let batch = |result| {
            let exporter = exporter.clone();
            histogram!(names::EXPORT_BATCH_SECONDS, "exporter" => exporter, "result" => result)
        };
        let rejected = |(reason, to): (&'static str, RejectedTo)| {
            let exporter = exporter.clone();
            counter!(
                names::EXPORT_REJECTED,
                "exporter" => exporter, "reason" => reason, "to" => to.name()
            )
        };
        let reasons = Unsendable::REASONS.iter();
        let reasons =
            reasons.flat_map(|reason| RejectedTo::ALL.iter().map(move |to| (*reason, *to)));
        Self {
            pending: now(names::EXPORT_PENDING),
            oldest: now(names::EXPORT_OLDEST_SECONDS),
            running: now(names::EXPORT_RUNNING),
            exports: ExportEnd::ALL.iter().map(|end| (*end, export(*end))).collect(),
            batch_ok: batch("ok"),
            batch_error: batch("error"),
            records: count(names::EXPORT_RECORDS),
            sent: count(names::EXPORT_SENT),
            failed: count(names::EXPORT_FAILED),
            rejected: reasons.map(|labels| (labels, rejected(labels))).collect(),
            collected: count(names::EXPORT_COLLECTED),
            bad: count(names::EXPORT_BAD),
        }
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl ExportMetrics for ExporterMetrics {
    fn began(&self) {
        self.running.increment(1);
    }

    fn ended(&self, took: Duration, end: ExportEnd) {
        self.running.decrement(1);
        if let Some((_, exports)) = self.exports.iter().find(|(of, _)| *of == end) {
            exports.record(took.as_secs_f64());
        }
    }

    fn batch(&self, batch: &SentBatch) {
        let time = if batch.is_ok { &self.batch_ok } else { &self.batch_error };
        time.record(batch.took.as_secs_f64());
        self.records.increment(batch.records);
        self.sent.increment(batch.sent);
        self.failed.increment(batch.failed);
    }

    fn rejected(&self, why: &Unsendable, to: RejectedTo) {
        let labels = (why.reason(), to);
        if let Some((_, rejected)) = self.rejected.iter().find(|(of, _)| *of == labels) {
            rejected.increment(1);
        }
    }

    fn collected(&self, events: u64, bad: u64) {
        self.collected.increment(events);
        self.bad.increment(bad);
    }

    fn backlog(&self, pending: u64, oldest: Option<Duration>) {
        #[expect(clippy::cast_precision_loss, reason = "a number of events")]
        self.pending.set(pending as f64);
        self.oldest.set(oldest.unwrap_or_default().as_secs_f64());
    }
}
