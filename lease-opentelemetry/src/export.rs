//! The adapter between the events of an exporter and a meter of OpenTelemetry.

use std::time::Duration;

use lease_export::{ExportEnd, ExportMetrics, RejectedTo, SentBatch, Unsendable};
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};
use opentelemetry::{KeyValue, StringValue};

use crate::instruments::{counter, measured, seconds, up_down};

/// Reports the events of an exporter of `lease-export` to a meter of OpenTelemetry. The attribute `exporter` is the name
/// that you give.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_export::Exporter;
/// use lease_opentelemetry::ExporterMeter;
///
/// fn observed(exporter: Exporter) -> Exporter {
///     let meter = opentelemetry::global::meter("leases");
///     exporter.with_metrics(Arc::new(ExporterMeter::new("orders", &meter)))
/// }
/// # drop(observed as fn(_) -> _);
/// ```
#[derive(Debug)]
pub struct ExporterMeter {
    exporter: KeyValue,
    pending: Gauge<f64>,
    oldest: Gauge<f64>,
    running: UpDownCounter<i64>,
    exports: Histogram<f64>,
    batches: Histogram<f64>,
    records: Counter<u64>,
    sent: Counter<u64>,
    failed: Counter<u64>,
    rejected: Counter<u64>,
    collected: Counter<u64>,
    bad: Counter<u64>,
}

impl ExporterMeter {
    /// Returns an adapter with the attribute `exporter`. Reports its counters as zero.
    pub fn new(exporter: impl Into<StringValue>, meter: &Meter) -> Self {
        let count = |name, description| counter(meter, name, description);
        let metrics = Self {
            exporter: KeyValue::new("exporter", exporter.into()),
            pending: measured(meter, "lease_export_pending", "Pending events"),
            oldest: measured(
                meter,
                "lease_export_oldest_seconds",
                "Age of the oldest pending event",
            ),
            running: up_down(meter, "lease_export_running", "Exports that run in this process"),
            exports: seconds(meter, "lease_export_seconds", "Time of an export"),
            batches: seconds(
                meter,
                "lease_export_batch_seconds",
                "Time of a batch with all retries",
            ),
            records: count("lease_export_records_total", "Records of the sink that were sent"),
            sent: count("lease_export_sent_total", "Events that the sink has taken"),
            failed: count(
                "lease_export_failed_total",
                "Events that the sink has neither taken nor refused",
            ),
            rejected: count("lease_export_rejected_total", "Events that the sink never takes"),
            collected: count("lease_export_collected_total", "Events collected from buckets"),
            bad: count("lease_export_bad_total", "Bucket entries that made no event"),
        };
        metrics.report_zeros();
        metrics
    }

    /// Without them, an alarm could not distinguish a counter at zero from a missing one.
    fn report_zeros(&self) {
        let exporter = self.alone();
        for counter in [&self.records, &self.sent, &self.failed, &self.collected, &self.bad] {
            counter.add(0, exporter);
        }
        self.running.add(0, exporter);
        for reason in Unsendable::REASONS {
            for to in RejectedTo::ALL {
                self.count_rejected(0, reason, *to);
            }
        }
    }

    fn count_rejected(&self, events: u64, reason: &'static str, to: RejectedTo) {
        let labels = [
            self.exporter.clone(),
            KeyValue::new("reason", reason),
            KeyValue::new("to", to.name()),
        ];
        self.rejected.add(events, &labels);
    }

    fn alone(&self) -> &[KeyValue] {
        std::slice::from_ref(&self.exporter)
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl ExportMetrics for ExporterMeter {
    fn began(&self) {
        self.running.add(1, self.alone());
    }

    fn ended(&self, took: Duration, end: ExportEnd) {
        self.running.add(-1, self.alone());
        let attributes = [self.exporter.clone(), KeyValue::new("end", end.name())];
        self.exports.record(took.as_secs_f64(), &attributes);
    }

    fn batch(&self, batch: &SentBatch) {
        let result = if batch.is_ok { "ok" } else { "error" };
        let attributes = [self.exporter.clone(), KeyValue::new("result", result)];
        self.batches.record(batch.took.as_secs_f64(), &attributes);
        self.records.add(batch.records, self.alone());
        self.sent.add(batch.sent, self.alone());
        self.failed.add(batch.failed, self.alone());
    }

    fn rejected(&self, why: &Unsendable, to: RejectedTo) {
        self.count_rejected(1, why.reason(), to);
    }

    fn collected(&self, events: u64, bad: u64) {
        self.collected.add(events, self.alone());
        self.bad.add(bad, self.alone());
    }

    fn backlog(&self, pending: u64, oldest: Option<Duration>) {
        #[expect(clippy::cast_precision_loss, reason = "a number of events")]
        self.pending.record(pending as f64, self.alone());
        self.oldest.record(oldest.unwrap_or_default().as_secs_f64(), self.alone());
    }
}
