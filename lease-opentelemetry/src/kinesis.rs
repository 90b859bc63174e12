//! The adapter between the events of a worker of Kinesis and a meter of OpenTelemetry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_kinesis::{
    Planned, ReadingEnd, ShardName, ShardStatus, SourceErrorKind, StreamId, TableUse, WorkerMetrics,
};
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};
use opentelemetry::{KeyValue, StringValue};
use parking_lot::Mutex;

use crate::instruments::{counter, measured, seconds, up_down};

/// Reports the events of a worker of `lease-kinesis` to a meter of OpenTelemetry. The attribute `stream` is the name
/// that you give. The attribute `application` distinguishes the plans of several workers in one process.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_kinesis::WorkerMetrics;
/// use lease_opentelemetry::KinesisMeter;
///
/// let meter = opentelemetry::global::meter("leases");
/// let metrics: Arc<dyn WorkerMetrics> = Arc::new(KinesisMeter::new("clicks", &meter));
/// // Worker::builder(…).with_metrics(metrics)
/// # drop(metrics);
/// ```
#[derive(Debug)]
pub struct KinesisMeter {
    streams: Vec<(StreamId, KeyValue)>,
    others: KeyValue,
    application: KeyValue,
    instruments: Instruments,
    /// The shards that this worker read when it last reported its lag. `None` unless the lag of each shard is reported.
    shards: Option<Mutex<BTreeSet<ShardName>>>,
}

#[derive(Debug)]
struct Instruments {
    held: UpDownCounter<i64>,
    wanted: Gauge<f64>,
    planned: Gauge<f64>,
    workers: Gauge<f64>,
    plan_changes: Counter<u64>,
    rows_read: Counter<u64>,
    read_units: Counter<u64>,
    writes: Counter<u64>,
    write_units: Counter<u64>,
    obtained: Counter<u64>,
    ended: Counter<u64>,
    behind: Gauge<f64>,
    shard_behind: Gauge<f64>,
    records: Counter<u64>,
    bytes: Counter<u64>,
    process: Histogram<f64>,
    checkpoint: Histogram<f64>,
    read_failures: Counter<u64>,
}

impl KinesisMeter {
    /// Returns an adapter for a worker of one stream. The attributes `stream` and `application` are `stream`. Reports its
    /// counters as zero. Two workers in one process need different names.
    pub fn new(stream: impl Into<StringValue>, meter: &Meter) -> Self {
        let stream = stream.into();
        Self::register(stream.clone(), stream, [], meter)
    }

    /// Returns an adapter for a worker of several streams. The attribute `stream` is the id of the stream. A stream
    /// that is missing here counts as `other`.
    pub fn of_streams(
        application: impl Into<StringValue>,
        streams: impl IntoIterator<Item = StreamId>,
        meter: &Meter,
    ) -> Self {
        Self::register(application.into(), "other".into(), streams, meter)
    }

    fn register(
        application: StringValue,
        others: StringValue,
        streams: impl IntoIterator<Item = StreamId>,
        meter: &Meter,
    ) -> Self {
        let instruments = Instruments::of(meter);
        let application = KeyValue::new("application", application);
        instruments.plan_changes.add(0, std::slice::from_ref(&application));
        instruments.table_used(&TableUse::default(), &application);
        let of = |name: StringValue| {
            let stream = KeyValue::new("stream", name);
            instruments.report_zeros(&application, &stream);
            stream
        };
        let others = of(others);
        let streams = streams.into_iter().map(|id| (id.clone(), of(id.to_string().into())));
        let streams = streams.collect();
        Self { streams, others, application, instruments, shards: None }
    }

    /// Also reports the lag of each shard. Each shard that this worker has read is a time series of its own. The lag
    /// of a shard that this worker no longer reads is 0.
    #[must_use]
    pub fn with_shards(mut self) -> Self {
        self.shards = Some(Mutex::default());
        self
    }

    fn stream(&self, stream: Option<&StreamId>) -> &KeyValue {
        let known = stream.and_then(|id| self.streams.iter().find(|(of, _)| of == id));
        known.map_or(&self.others, |(_, name)| name)
    }

    fn of(&self, shard: &ShardName) -> &KeyValue {
        self.stream(shard.stream.as_ref())
    }

    fn report_shards(&self, known: &mut BTreeSet<ShardName>, shards: &[ShardStatus]) {
        let read: BTreeMap<_, _> =
            shards.iter().map(|shard| (shard.name(), shard.behind)).collect();
        for (name, behind) in &read {
            self.report_shard(name, *behind);
        }
        for name in known.iter().filter(|name| !read.contains_key(*name)) {
            self.report_shard(name, Duration::ZERO);
        }
        *known = read.into_keys().collect();
    }

    fn report_shard(&self, name: &ShardName, behind: Duration) {
        let attributes = [self.of(name).clone(), KeyValue::new("shard", name.shard.to_string())];
        self.instruments.shard_behind.record(behind.as_secs_f64(), &attributes);
    }

    fn held(&self, shard: &ShardName) -> [KeyValue; 2] {
        [self.application.clone(), self.of(shard).clone()]
    }
}

impl Instruments {
    fn of(meter: &Meter) -> Self {
        let counter = |name, description| counter(meter, name, description);
        let measured = |name, description| measured(meter, name, description);
        let seconds = |name, description| seconds(meter, name, description);
        Self {
            held: up_down(meter, "lease_kinesis_shards_held", "Shards that this worker reads now"),
            wanted: measured(
                "lease_kinesis_shards_wanted",
                "Shards that the plan assigns to this worker",
            ),
            planned: measured("lease_kinesis_shards_planned", "Shards that a worker can read now"),
            workers: measured("lease_kinesis_workers", "Workers of the plan"),
            plan_changes: counter("lease_kinesis_plan_changes_total", "Changes of the plan"),
            rows_read: counter(
                "lease_kinesis_table_rows_read_total",
                "Rows of the table that this worker has read",
            ),
            read_units: counter(
                "lease_kinesis_table_read_units_total",
                "Read units, by the rules of DynamoDB",
            ),
            writes: counter(
                "lease_kinesis_table_writes_total",
                "Requests that write one row of the table",
            ),
            write_units: counter(
                "lease_kinesis_table_write_units_total",
                "Write units, by the rules of DynamoDB",
            ),
            obtained: counter(
                "lease_kinesis_shards_obtained_total",
                "Shards that this worker obtained",
            ),
            ended: counter(
                "lease_kinesis_shards_ended_total",
                "Shards that this worker no longer reads",
            ),
            behind: measured("lease_kinesis_behind_seconds", "Largest lag of a shard"),
            shard_behind: measured("lease_kinesis_shard_behind_seconds", "Lag of a shard"),
            records: counter("lease_kinesis_records_total", "Records that were processed"),
            bytes: counter("lease_kinesis_bytes_total", "Data of processed records"),
            process: seconds("lease_kinesis_process_seconds", "Time of a call of a processor"),
            checkpoint: seconds("lease_kinesis_checkpoint_seconds", "Time of a checkpoint's write"),
            read_failures: counter(
                "lease_kinesis_read_failures_total",
                "Failed reads of the stream",
            ),
        }
    }

    fn table_used(&self, used: &TableUse, application: &KeyValue) {
        let application = std::slice::from_ref(application);
        self.rows_read.add(used.rows_read, application);
        self.read_units.add(used.read_units, application);
        self.writes.add(used.writes, application);
        self.write_units.add(used.write_units, application);
    }

    /// Without them, an alarm could not distinguish a counter at zero from a missing one.
    fn report_zeros(&self, application: &KeyValue, stream: &KeyValue) {
        let alone = std::slice::from_ref(stream);
        self.held.add(0, &[application.clone(), stream.clone()]);
        self.behind.record(0.0, alone);
        for counter in [&self.obtained, &self.records, &self.bytes] {
            counter.add(0, alone);
        }
        for end in ReadingEnd::ALL {
            self.ended.add(0, &[stream.clone(), KeyValue::new("end", end.name())]);
        }
        for kind in SourceErrorKind::ALL {
            self.read_failures.add(0, &[stream.clone(), KeyValue::new("cause", kind.name())]);
        }
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl WorkerMetrics for KinesisMeter {
    fn obtained(&self, shard: &ShardName) {
        let stream = std::slice::from_ref(self.of(shard));
        self.instruments.obtained.add(1, stream);
        self.instruments.held.add(1, &self.held(shard));
    }

    fn ended(&self, shard: &ShardName, end: ReadingEnd) {
        self.instruments.held.add(-1, &self.held(shard));
        let stream = self.of(shard).clone();
        self.instruments.ended.add(1, &[stream, KeyValue::new("end", end.name())]);
    }

    fn planned(&self, plan: &Planned) {
        let application = std::slice::from_ref(&self.application);
        self.instruments.wanted.record(as_f64(plan.wanted), application);
        self.instruments.planned.record(as_f64(plan.shards), application);
        self.instruments.workers.record(as_f64(plan.workers), application);
        self.instruments.plan_changes.add(u64::from(plan.has_changed), application);
    }

    fn stopped(&self) {
        let Instruments { wanted, planned, workers, .. } = &self.instruments;
        for gauge in [wanted, planned, workers] {
            gauge.record(0.0, std::slice::from_ref(&self.application));
        }
    }

    fn table_used(&self, used: &TableUse) {
        self.instruments.table_used(used, &self.application);
    }

    fn behind(&self, shards: &[ShardStatus]) {
        for stream in self.streams.iter().map(|(_, stream)| stream).chain([&self.others]) {
            let lags = shards.iter().filter(|shard| self.stream(shard.stream.as_ref()) == stream);
            let largest = lags.map(|shard| shard.behind).max().unwrap_or_default();
            self.instruments.behind.record(largest.as_secs_f64(), std::slice::from_ref(stream));
        }
        if let Some(known) = &self.shards {
            self.report_shards(&mut known.lock(), shards);
        }
    }

    fn processed(&self, shard: &ShardName, records: u64, bytes: u64) {
        let stream = std::slice::from_ref(self.of(shard));
        self.instruments.records.add(records, stream);
        self.instruments.bytes.add(bytes, stream);
    }

    fn called(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        let attributes = [self.of(shard).clone(), result(is_ok)];
        self.instruments.process.record(took.as_secs_f64(), &attributes);
    }

    fn checkpointed(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        let attributes = [self.of(shard).clone(), result(is_ok)];
        self.instruments.checkpoint.record(took.as_secs_f64(), &attributes);
    }

    fn read_failed(&self, shard: &ShardName, kind: SourceErrorKind) {
        let attributes = [self.of(shard).clone(), KeyValue::new("cause", kind.name())];
        self.instruments.read_failures.add(1, &attributes);
    }
}

fn result(is_ok: bool) -> KeyValue {
    KeyValue::new("result", if is_ok { "ok" } else { "error" })
}

#[expect(clippy::cast_precision_loss, reason = "a number of shards or workers")]
fn as_f64(number: usize) -> f64 {
    number as f64
}
