//! The adapter between the events of a worker of Kinesis and the `metrics` facade.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_kinesis::{
    Planned, ReadingEnd, ShardName, ShardStatus, SourceErrorKind, StreamId, TableUse, WorkerMetrics,
};
use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};
use parking_lot::Mutex;

use crate::names;

/// Reports the events of a worker of `lease-kinesis` to the recorder of the `metrics` facade. The label `stream` is the
/// name that you give. The label `application` distinguishes the plans of several workers in one process.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_kinesis::WorkerMetrics;
/// use lease_metrics::KinesisMetrics;
///
/// // First install a recorder, such as that of metrics-exporter-prometheus.
/// let metrics: Arc<dyn WorkerMetrics> = Arc::new(KinesisMetrics::new("clicks"));
/// // Worker::builder(…).with_metrics(metrics)
/// # drop(metrics);
/// ```
#[derive(Debug)]
pub struct KinesisMetrics {
    streams: BTreeMap<StreamId, StreamInstruments>,
    others: StreamInstruments,
    plan: PlanInstruments,
    /// `None` unless the lag of each shard is reported.
    shards: Option<Mutex<BTreeMap<ShardName, Gauge>>>,
}

#[derive(Debug)]
struct StreamInstruments {
    name: SharedString,
    held: Gauge,
    obtained: Counter,
    ended: Vec<(ReadingEnd, Counter)>,
    behind: Gauge,
    records: Counter,
    bytes: Counter,
    process: Timed,
    checkpoint: Timed,
    read_failures: Vec<(SourceErrorKind, Counter)>,
}

#[derive(Debug)]
struct PlanInstruments {
    wanted: Gauge,
    planned: Gauge,
    workers: Gauge,
    changes: Counter,
    rows_read: Counter,
    read_units: Counter,
    writes: Counter,
    write_units: Counter,
}

/// A histogram of each result.
#[derive(Debug)]
struct Timed {
    ok: Histogram,
    error: Histogram,
}

impl KinesisMetrics {
    /// Registers the metrics of a worker of one stream. The labels `stream` and `application` are `stream`. Install the
    /// recorder before. Two workers in one process need different names.
    pub fn new(stream: impl Into<SharedString>) -> Self {
        let stream = stream.into();
        Self::register(&stream, stream.clone(), [])
    }

    /// Registers the metrics of a worker of several streams. The label `stream` is the id of the stream. A stream that
    /// is missing here counts as `other`.
    pub fn of_streams(
        application: impl Into<SharedString>,
        streams: impl IntoIterator<Item = StreamId>,
    ) -> Self {
        Self::register(&application.into(), SharedString::const_str("other"), streams)
    }

    fn register(
        application: &SharedString,
        others: SharedString,
        streams: impl IntoIterator<Item = StreamId>,
    ) -> Self {
        names::describe_kinesis();
        let of = |stream: StreamId| {
            let name = stream.to_string().into();
            (stream, StreamInstruments::register(application, name))
        };
        Self {
            streams: streams.into_iter().map(of).collect(),
            others: StreamInstruments::register(application, others),
            plan: PlanInstruments::register(application),
            shards: None,
        }
    }

    /// Also reports the lag of each shard, to the recorder that is installed for the process. Each
    /// shard that this worker has read is a time series of its own. The lag of a shard that this worker no longer reads
    /// is 0.
    #[must_use]
    pub fn with_shards(mut self) -> Self {
        self.shards = Some(Mutex::default());
        self
    }

    fn of(&self, stream: Option<&StreamId>) -> &StreamInstruments {
        stream.and_then(|stream| self.streams.get(stream)).unwrap_or(&self.others)
    }

    fn all(&self) -> impl Iterator<Item = &StreamInstruments> {
        self.streams.values().chain([&self.others])
    }

    fn report_shards(&self, gauges: &mut BTreeMap<ShardName, Gauge>, shards: &[ShardStatus]) {
        let read: BTreeSet<_> = shards.iter().map(ShardStatus::name).collect();
        gauges.retain(|name, lag| {
            let is_read = read.contains(name);
            if !is_read {
                lag.set(0.0);
            }
            is_read
        });
        for shard in shards {
            let lag = gauges.entry(shard.name()).or_insert_with(|| {
                let stream = self.of(shard.stream.as_ref()).name.clone();
                let shard = shard.shard.to_string();
                gauge!(names::KINESIS_SHARD_BEHIND_SECONDS, "stream" => stream, "shard" => shard)
            });
            lag.set(shard.behind.as_secs_f64());
        }
    }
}

impl PlanInstruments {
    fn register(application: &SharedString) -> Self {
        let gauge = |name: &'static str| gauge!(name, "application" => application.clone());
        let counter = |name: &'static str| counter!(name, "application" => application.clone());
        Self {
            wanted: gauge(names::KINESIS_SHARDS_WANTED),
            planned: gauge(names::KINESIS_SHARDS_PLANNED),
            workers: gauge(names::KINESIS_WORKERS),
            changes: counter(names::KINESIS_PLAN_CHANGES),
            rows_read: counter(names::KINESIS_TABLE_ROWS_READ),
            read_units: counter(names::KINESIS_TABLE_READ_UNITS),
            writes: counter(names::KINESIS_TABLE_WRITES),
            write_units: counter(names::KINESIS_TABLE_WRITE_UNITS),
        }
    }
}

impl StreamInstruments {
    /// Registers all instruments, so that each is reported as zero before its first event.
    fn register(application: &SharedString, name: SharedString) -> Self {
        let held = gauge!(names::KINESIS_SHARDS_HELD, "application" => application.clone(), "stream" => name.clone());
        let ended = |end: ReadingEnd| counter!(names::KINESIS_SHARDS_ENDED, "stream" => name.clone(), "end" => end.name());
        let failures = |kind: SourceErrorKind| counter!(names::KINESIS_READ_FAILURES, "stream" => name.clone(), "cause" => kind.name());
        Self {
            held,
            obtained: counter!(names::KINESIS_SHARDS_OBTAINED, "stream" => name.clone()),
            ended: ReadingEnd::ALL.iter().map(|end| (*end, ended(*end))).collect(),
            behind: gauge!(names::KINESIS_BEHIND_SECONDS, "stream" => name.clone()),
            records: counter!(names::KINESIS_RECORDS, "stream" => name.clone()),
            bytes: counter!(names::KINESIS_BYTES, "stream" => name.clone()),
            process: Timed::register(names::KINESIS_PROCESS_SECONDS, &name),
            checkpoint: Timed::register(names::KINESIS_CHECKPOINT_SECONDS, &name),
            read_failures: SourceErrorKind::ALL
                .iter()
                .map(|kind| (*kind, failures(*kind)))
                .collect(),
            name,
        }
    }
}

impl Timed {
    fn register(name: &'static str, stream: &SharedString) -> Self {
        let of = |result| histogram!(name, "stream" => stream.clone(), "result" => result);
        Self { ok: of("ok"), error: of("error") }
    }

    fn record(&self, took: Duration, is_ok: bool) {
        let histogram = if is_ok { &self.ok } else { &self.error };
        histogram.record(took.as_secs_f64());
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl WorkerMetrics for KinesisMetrics {
    fn obtained(&self, shard: &ShardName) {
        let stream = self.of(shard.stream.as_ref());
        stream.obtained.increment(1);
        stream.held.increment(1);
    }

    fn ended(&self, shard: &ShardName, end: ReadingEnd) {
        let stream = self.of(shard.stream.as_ref());
        stream.held.decrement(1);
        if let Some((_, ended)) = stream.ended.iter().find(|(of, _)| *of == end) {
            ended.increment(1);
        }
    }

    fn planned(&self, plan: &Planned) {
        self.plan.wanted.set(as_f64(plan.wanted));
        self.plan.planned.set(as_f64(plan.shards));
        self.plan.workers.set(as_f64(plan.workers));
        self.plan.changes.increment(u64::from(plan.has_changed));
    }

    fn stopped(&self) {
        for gauge in [&self.plan.wanted, &self.plan.planned, &self.plan.workers] {
            gauge.set(0.0);
        }
    }

    fn table_used(&self, used: &TableUse) {
        self.plan.rows_read.increment(used.rows_read);
        self.plan.read_units.increment(used.read_units);
        self.plan.writes.increment(used.writes);
        self.plan.write_units.increment(used.write_units);
    }

    fn behind(&self, shards: &[ShardStatus]) {
        for stream in self.all() {
            let of_stream =
                |shard: &&ShardStatus| std::ptr::eq(self.of(shard.stream.as_ref()), stream);
            let lags = shards.iter().filter(of_stream).map(|shard| shard.behind);
            stream.behind.set(lags.max().unwrap_or_default().as_secs_f64());
        }
        if let Some(gauges) = &self.shards {
            self.report_shards(&mut gauges.lock(), shards);
        }
    }

    fn processed(&self, shard: &ShardName, records: u64, bytes: u64) {
        let stream = self.of(shard.stream.as_ref());
        stream.records.increment(records);
        stream.bytes.increment(bytes);
    }

    fn called(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        self.of(shard.stream.as_ref()).process.record(took, is_ok);
    }

    fn checkpointed(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        self.of(shard.stream.as_ref()).checkpoint.record(took, is_ok);
    }

    fn read_failed(&self, shard: &ShardName, kind: SourceErrorKind) {
        let failures = &self.of(shard.stream.as_ref()).read_failures;
        if let Some((_, failures)) = failures.iter().find(|(of, _)| *of == kind) {
            failures.increment(1);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of shards or workers")]
fn as_f64(number: usize) -> f64 {
    number as f64
}
