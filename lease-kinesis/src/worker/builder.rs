//! Sets up a worker: the settings and their defaults.

mod check;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lease_core::store::LeaseTable;
use lease_core::{LeaseOptions, Lessee, Locker};
use tokio_util::sync::CancellationToken;

use crate::metrics::WorkerMetrics;
use crate::names::{Application, StreamId};
use crate::plan::Member;
use crate::position::InitialPosition;
use crate::processor::ProcessorFactory;
use crate::settings::{Checkpoints, Settings};
use crate::source::Source;
use crate::source::reader::{Pace, Retrieval};
use crate::status::StatusRegistry;
use crate::table::sync::ShardSync;
use crate::worker::Worker;
use crate::worker::builder::check::Reason;
use crate::worker::coexistence::Coexistence;
use crate::worker::parts::{Mode, WorkerParts};
#[cfg(feature = "simulation")]
use crate::worker::simulated::Simulated;

pub use self::check::InvalidSetup;

/// Configures a [`Worker`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use async_trait::async_trait;
/// use lease_core::LeaseOptions;
/// use lease_kinesis::{
///     Batch, Checkpointer, Checkpoints, Outcome, RecordProcessor, ShardContext, SimStream, Worker,
/// };
/// use lease_memory::MemoryStore;
///
/// struct Payments;
///
/// #[async_trait]
/// impl RecordProcessor for Payments {
///     async fn process_records(&mut self, batch: &Batch, _: &Checkpointer) -> Outcome {
///         println!("{} payments", batch.records.len());
///         Outcome::Continue
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (table, stream) = (MemoryStore::new(), SimStream::new(4));
/// let worker = Worker::builder("payments", table, stream, |_: &ShardContext| Payments)
///     .with_name("host-17".parse()?)
///     .with_options(LeaseOptions::new(Duration::from_secs(20))?)
///     .with_checkpoints(Checkpoints::Every(Duration::from_secs(5)))
///     .with_max_shards(2)
///     .build()?;
/// assert_eq!(worker.name().as_str(), "host-17");
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct WorkerBuilder {
    application: String,
    sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
    factory: Arc<dyn ProcessorFactory>,
    name: Option<Lessee>,
    weight: u16,
    most: Option<usize>,
    replaces: Option<Lessee>,
    #[cfg(feature = "simulation")]
    pub(super) simulated: Simulated,
    coexistence: Option<Box<dyn Coexistence>>,
    metrics: Option<Arc<dyn WorkerMetrics>>,
    lease_metrics: Option<Arc<dyn lease_core::Metrics>>,
    mode: Mode,
    /// The coexistence may also specify a position.
    initial: Option<InitialPosition>,
    settings: Settings,
}

impl Worker {
    /// Configures a worker of `application` that keeps its leases in `table` and reads `source` with the
    /// processors of `factory`.
    ///
    /// An application's name has 1 to 256 letters, digits, `_`, `.` and `-`. All workers of one application
    /// must use the same table, streams and ttl.
    pub fn builder(
        application: impl Into<String>,
        table: impl LeaseTable,
        source: impl Source,
        factory: impl ProcessorFactory,
    ) -> WorkerBuilder {
        let sources = BTreeMap::from([(None, Arc::new(source) as Arc<dyn Source>)]);
        WorkerBuilder::new(application.into(), Arc::new(table), sources, Arc::new(factory))
    }

    /// Configures a worker that reads several streams.
    pub fn builder_of_streams(
        application: impl Into<String>,
        table: impl LeaseTable,
        sources: impl IntoIterator<Item = (StreamId, Arc<dyn Source>)>,
        factory: impl ProcessorFactory,
    ) -> WorkerBuilder {
        let sources = sources.into_iter().map(|(stream, source)| (Some(stream), source)).collect();
        WorkerBuilder::new(application.into(), Arc::new(table), sources, Arc::new(factory))
    }
}

impl WorkerBuilder {
    fn new(
        application: String,
        table: Arc<dyn LeaseTable>,
        sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
        factory: Arc<dyn ProcessorFactory>,
    ) -> Self {
        #[expect(clippy::expect_used, reason = "in range")]
        let options = LeaseOptions::new(Duration::from_secs(10)).expect("a ttl");
        let settings = Settings {
            #[expect(clippy::expect_used, reason = "replaced by the given name when it is parsed")]
            application: "unnamed".parse().expect("a name"),
            table,
            options,
            initial: InitialPosition::default(),
            retrieval: Retrieval::default(),
            pace: Pace { most_records: 10_000, idle: Duration::from_secs(1) },
            checkpoints: Checkpoints::default(),
            empty_batches: false,
            batch_limit: None,
            restarts: None,
            failures: Some(DEFAULT_MAX_FAILURES),
            first_backoff: Duration::from_millis(500),
            last_backoff: Duration::from_mins(1),
            grace: Duration::from_secs(30),
            settling: Duration::from_secs(1),
            most_hand_overs: None,
            sync_interval: Duration::from_mins(1),
            wall_clock: Arc::new(millis_since_1970),
        };
        Self {
            application,
            sources,
            factory,
            name: None,
            weight: 1,
            most: None,
            replaces: None,
            #[cfg(feature = "simulation")]
            simulated: Simulated::default(),
            coexistence: None,
            metrics: None,
            lease_metrics: None,
            mode: Mode::Lists,
            initial: None,
            settings,
        }
    }

    /// Sets the worker's name. The default consists of host, process id and a random part. Two running
    /// workers must not share a name. A restarted worker with the same name gets its shards back.
    pub fn with_name(mut self, name: Lessee) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the lease options. The default ttl is 10 s, as in the Kinesis Client Library. Other workers read
    /// the shards of a crashed worker after at most 5/3 of the ttl.
    pub fn with_options(mut self, options: LeaseOptions) -> Self {
        self.settings.options = options;
        self
    }

    /// Sets where reading starts in shards without a row. The default is [`InitialPosition::Latest`].
    ///
    /// The start time of `Latest` comes from this worker's clock. If the clock is ahead, the worker skips
    /// records. If clocks are not synchronized, use an explicit time, not in the future.
    ///
    /// A worker [with a coexistence](Self::with_coexistence) starts where the other library's workers start.
    /// A different value here is an error.
    pub fn with_initial_position(mut self, initial: InitialPosition) -> Self {
        self.initial = Some(initial);
        self
    }

    /// Sets how records are retrieved. The default is [`Retrieval::Polling`].
    pub fn with_retrieval(mut self, retrieval: Retrieval) -> Self {
        self.settings.retrieval = retrieval;
        self
    }

    /// Sets the maximum number of records in a batch, 1 to 10,000. The default is 10,000. An aggregate counts
    /// as one record. The setting limits memory: each shard that is behind has one batch of up to 10 MB in
    /// memory.
    pub fn with_max_records(mut self, records: u16) -> Self {
        self.settings.pace.most_records = records;
        self
    }

    /// Sets the pause before the next poll of a shard without new records. The default is 1 s, the minimum
    /// 200 ms.
    pub fn with_idle_pause(mut self, idle: Duration) -> Self {
        self.settings.pace.idle = idle;
        self
    }

    /// Sets who decides when to checkpoint. The default is [`Checkpoints::ByProcessor`].
    pub fn with_checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.settings.checkpoints = checkpoints;
        self
    }

    /// Also delivers batches without records, which report how far the processor is behind.
    pub fn with_empty_batches(mut self) -> Self {
        self.settings.empty_batches = true;
        self
    }

    /// Limits each call of a processor to `limit`, which must be more than 0. By default, there is no limit.
    ///
    /// The worker cancels a longer call, and a new processor starts at the checkpoint. After a cancelled
    /// `shutdown_requested`, this worker starts no other processor.
    pub fn with_batch_limit(mut self, limit: Duration) -> Self {
        self.settings.batch_limit = Some(limit);
        self
    }

    /// Releases a shard for a while if its processor was replaced `restarts` times without a new checkpoint.
    /// The worker replaces a processor after a panic, a time limit, a failed start, or a [requested
    /// restart](crate::NeedsRestart). By default, there is no limit.
    pub fn with_max_restarts(mut self, restarts: u32) -> Self {
        self.settings.restarts = Some(restarts);
        self
    }

    /// Acts as for [`StopShard`](crate::Outcome::StopShard) after a batch [failed](crate::Outcome::Failed)
    /// `failures` times in a row without a checkpoint.
    ///
    /// The default is 30. With the default backoff, this takes 23 minutes, longer than database failovers and
    /// deployments. The minimum is 1. `None` retries without a limit.
    pub fn with_max_failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.settings.failures = failures.into();
        self
    }

    /// Sets the pause after a failure: `first`, doubled after each further failure, up to `last`. The default
    /// is 500 ms to 1 min. `first` must be more than 0, `last` at most 1 h.
    pub fn with_backoff(mut self, first: Duration, last: Duration) -> Self {
        (self.settings.first_backoff, self.settings.last_backoff) = (first, last);
        self
    }

    /// Sets how long a new worker waits for other new workers before it obtains a second shard. The worker
    /// never waits longer than a third of the ttl. The default is 1 s, the minimum 10 ms.
    pub fn with_settling(mut self, settling: Duration) -> Self {
        self.settings.settling = settling;
        self
    }

    /// Sets the maximum time from a stop request to the end of the worker, even if calls hang. The default is
    /// 30 s, the time that Kubernetes gives a pod.
    ///
    /// In the last eighth of this time (at most 2 s), the worker releases shards that were not handed over.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Limits the number of shards that this worker reads. The limit is at least 1. By default, there is no
    /// limit.
    pub fn with_max_shards(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// Limits the number of concurrent hand-overs, for processors that take long to start. The limit is at
    /// least 1. By default, there is no limit.
    pub fn with_max_hand_overs(mut self, most: usize) -> Self {
        self.settings.most_hand_overs = Some(most);
        self
    }

    /// Sets the worker's share relative to a worker of weight 1, from 1 to 1,000. The default is 1.
    pub fn with_weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    /// Replaces `worker`, which will soon stop. This worker obtains no shards until `worker` leaves, and then
    /// all shards of `worker`.
    pub fn replacing(mut self, worker: Lessee) -> Self {
        self.replaces = Some(worker);
        self
    }

    /// Sets the time between two comparisons of the stream's shards with the rows. The default is 1 min. A
    /// worker finds the children of a shard without this delay.
    pub fn with_sync_interval(mut self, interval: Duration) -> Self {
        self.settings.sync_interval = interval;
        self
    }

    /// Shares the table with workers of another library, by the rules of `coexistence`, such as
    /// `lease_kcl::KclCoexistence`. The ttl must not exceed [`Coexistence::max_ttl`].
    pub fn with_coexistence(mut self, coexistence: impl Coexistence) -> Self {
        self.coexistence = Some(Box::new(coexistence));
        self
    }

    /// Reports the worker's events to `metrics`, such as the adapters of `lease-metrics` and `lease-opentelemetry`.
    pub fn with_metrics(mut self, metrics: Arc<dyn WorkerMetrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Reports the events of the worker's leases to `metrics`: of the shards, and of the worker's own row.
    pub fn with_lease_metrics(mut self, metrics: Arc<dyn lease_core::Metrics>) -> Self {
        self.lease_metrics = Some(metrics);
        self
    }

    /// Holds all shards under one session of the worker, and reads only the rows that have changed. So a fleet
    /// at rest sends one heartbeat per worker and tick, and reads three rows per worker and tick.
    ///
    /// **Experimental:** a shard may stay without a reader for minutes. Do not use this mode in production.
    ///
    /// By default, each shard has heartbeats, and each worker lists all rows at each tick. A session is meant for
    /// fleets of more than about a hundred shards. To change the mode of an application, replace its workers one
    /// by one: workers of both modes share the shards. Meanwhile, a worker under a session also reads the rows of all
    /// shards whose readers have no session. It notices a new worker without a session within a minute or more.
    ///
    /// If the store throttles the worker's own row, the worker may lose all of its shards at once. An operator
    /// evicts the worker's own row, since a store refuses to evict a lease under a session.
    ///
    /// The table must keep sessions, as `lease-memory`, `lease-dynamodb` and one server of `lease-redis` do.
    pub fn with_session(mut self) -> Self {
        self.mode = Mode::Session;
        self
    }

    /// Sets the clock of [`InitialPosition::Latest`], in milliseconds since 1970, for tests.
    pub fn with_wall_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.settings.wall_clock = Arc::new(clock);
        self
    }

    /// Builds the worker. Call [`run`](Worker::run) to start it.
    ///
    /// # Errors
    ///
    /// Fails if a setting is out of range, or differs from the [coexistence](Self::with_coexistence).
    pub fn build(mut self) -> Result<Worker, InvalidSetup> {
        let application: Application = self.application.parse().map_err(Reason::from)?;
        self.settings.initial = self.agreed_position()?;
        self.check()?;
        let mut settings = self.settings;
        settings.application = application;
        let status = StatusRegistry::new(self.metrics);
        settings.table = status.meter(settings.table);
        let mut locker =
            Locker::new(Arc::clone(&settings.table)).with_options(settings.options.clone());
        #[cfg(feature = "simulation")]
        {
            locker = self.simulated.apply(locker);
        }
        if let Some(metrics) = self.lease_metrics {
            locker = locker.with_metrics(metrics);
        }
        if let Some(name) = self.name {
            locker = locker.with_lessee(name);
        }
        let mut me = Member::new(locker.lessee().clone());
        (me.weight, me.most, me.replaces) = (self.weight, self.most, self.replaces);
        let own_key = settings.application.worker(&me.name).map_err(Reason::from)?;
        let row_locker = match self.mode {
            Mode::Lists => locker.clone(),
            Mode::Session => locker.clone().with_options(of_session(&settings.options)),
        };
        let settings = Arc::new(settings);
        let sync = ShardSync::new(Arc::clone(&settings), self.sources);
        let parts = WorkerParts {
            settings,
            factory: self.factory,
            sync: Arc::new(sync),
            locker,
            row_locker,
            mode: self.mode,
            me,
            own_key,
            status,
            stopping: CancellationToken::new(),
        };
        Ok(Worker::new(parts, self.coexistence))
    }
}

#[cfg(feature = "simulation")]
impl WorkerBuilder {
    /// Sets the clock for the ttls of leases, for simulations.
    pub fn with_clock(mut self, clock: Arc<dyn lease_core::store::Clock>) -> Self {
        self.simulated.clock = Some(clock);
        self
    }

    /// Sets the seed of all random choices, for simulations.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.simulated.seed = Some(seed);
        self
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("application", &self.application)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A heartbeat follows the last one after 85 to 95 % of a period. With this ttl, a session sends one heartbeat per
/// tick on average.
fn of_session(options: &LeaseOptions) -> LeaseOptions {
    options.clone().with_ttl(options.ttl() * 10 / 9).unwrap_or_else(|_too_long| options.clone())
}

#[expect(clippy::disallowed_methods, reason = "for the start of a stream; no lease depends on it")]
fn millis_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The first seven pauses take 63.5 s together, and each further pause takes 1 min.
const DEFAULT_MAX_FAILURES: u32 = 30;
