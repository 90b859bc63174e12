//! The adapter between the events of a worker of Kinesis and a meter of OpenTelemetry.

use std::collections::BTreeSet;
use std::time::Duration;

use lease_kinesis::{
    Planned, ReadingEnd, ShardName, ShardStatus, SourceErrorKind, StreamId, WorkerMetrics,
};
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};
use opentelemetry::{KeyValue, StringValue};
use parking_lot::Mutex;

use crate::instruments::{counter, measured, seconds, up_down};

/// Reports the events of a worker of `lease-kinesis` to a meter of OpenTelemetry. The attribute `stream` is the name
/// that you give.
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
    instruments: Instruments,
    /// The shards that this worker has read. `None` unless the lag of each shard is reported.
    shards: Option<Mutex<BTreeSet<ShardName>>>,
}

#[derive(Debug)]
struct Instruments {
    held: UpDownCounter<i64>,
    wanted: Gauge<f64>,
    planned: Gauge<f64>,
    workers: Gauge<f64>,
    plan_changes: Counter<u64>,
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
    /// Returns an adapter for a worker of one stream, with the attribute `stream`. Reports its counters as zero.
    pub fn new(stream: impl Into<StringValue>, meter: &Meter) -> Self {
        Self::register(stream.into(), [], meter)
    }

    /// Returns an adapter for a worker of several streams. The attribute is the id of the stream. A stream that is
    /// missing here counts as `other`.
    pub fn of_streams(streams: impl IntoIterator<Item = StreamId>, meter: &Meter) -> Self {
        Self::register("other".into(), streams, meter)
    }

    fn register(
        others: StringValue,
        streams: impl IntoIterator<Item = StreamId>,
        meter: &Meter,
    ) -> Self {
        let instruments = Instruments::of(meter);
        let of = |name: StringValue| {
            let stream = KeyValue::new("stream", name);
            instruments.report_zeros(&stream);
            stream
        };
        let others = of(others);
        let streams = streams.into_iter().map(|id| (id.clone(), of(id.to_string().into())));
        Self { streams: streams.collect(), others, instruments, shards: None }
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
        known.extend(shards.iter().map(ShardStatus::name));
        for name in known.iter() {
            let shard = shards.iter().find(|shard| shard.name() == *name);
            let behind = shard.map_or(Duration::ZERO, |shard| shard.behind);
            let attributes =
                [self.of(name).clone(), KeyValue::new("shard", name.shard.to_string())];
            self.instruments.shard_behind.record(behind.as_secs_f64(), &attributes);
        }
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
            planned: measured("lease_kinesis_shards_planned", "Shards of the plan, of all workers"),
            workers: measured("lease_kinesis_workers", "Workers of the plan"),
            plan_changes: counter("lease_kinesis_plan_changes_total", "Changes of the plan"),
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

    /// Without them, an alarm could not distinguish a counter at zero from a missing one.
    fn report_zeros(&self, stream: &KeyValue) {
        let alone = std::slice::from_ref(stream);
        self.held.add(0, alone);
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
        self.plan_changes.add(0, &[]);
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl WorkerMetrics for KinesisMeter {
    fn obtained(&self, shard: &ShardName) {
        let stream = std::slice::from_ref(self.of(shard));
        self.instruments.obtained.add(1, stream);
        self.instruments.held.add(1, stream);
    }

    fn ended(&self, shard: &ShardName, end: ReadingEnd) {
        let stream = self.of(shard).clone();
        self.instruments.held.add(-1, std::slice::from_ref(&stream));
        self.instruments.ended.add(1, &[stream, KeyValue::new("end", end.name())]);
    }

    fn planned(&self, plan: &Planned) {
        self.instruments.wanted.record(as_f64(plan.wanted), &[]);
        self.instruments.planned.record(as_f64(plan.shards), &[]);
        self.instruments.workers.record(as_f64(plan.workers), &[]);
        self.instruments.plan_changes.add(u64::from(plan.has_changed), &[]);
    }

    fn stopped(&self) {
        let Instruments { wanted, planned, workers, .. } = &self.instruments;
        [wanted, planned, workers].into_iter().for_each(|gauge| gauge.record(0.0, &[]));
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
