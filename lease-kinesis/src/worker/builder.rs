//! How a worker is set up: what has a default, and what is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lease_core::{Clock, InvalidInput, LeaseOptions, LeaseTable, Lessee, Locker};
use thiserror::Error;

use crate::invalid::InvalidText;
use crate::names::{Application, StreamId};
use crate::plan::Member;
use crate::position::InitialPosition;
use crate::processor::ProcessorFactory;
use crate::reader::{Pace, Retrieval};
use crate::settings::{Checkpoints, Settings};
use crate::source::Source;
use crate::sync::ShardSync;
use crate::worker::Worker;

/// Sets up a [`Worker`].
#[must_use = "a builder does nothing until it builds"]
pub struct WorkerBuilder {
    application: String,
    sources: BTreeMap<Option<StreamId>, Arc<dyn Source>>,
    name: Option<Lessee>,
    weight: u16,
    most: Option<usize>,
    replaces: Option<Lessee>,
    clock: Option<Arc<dyn Clock>>,
    seed: Option<u64>,
    #[cfg(feature = "kcl")]
    beside: Option<crate::kcl::Beside>,
    settings: Settings,
}

/// A worker cannot be set up like this.
#[derive(Debug, Error)]
#[error("worker not set up: {0}")]
pub struct InvalidSetup(Fault);

#[derive(Debug, Error)]
enum Fault {
    #[error(transparent)]
    Text(#[from] InvalidText),
    #[error(transparent)]
    Input(#[from] InvalidInput),
    #[error("{0}")]
    Range(String),
}

impl Worker {
    /// Sets up a worker of `application`, on `table`, that reads `source` with the processors of
    /// `factory`.
    ///
    /// Applications are named with 1 to 256 letters, digits, `_`, `.` and `-`; all workers of one
    /// must be given the same table, streams and ttl.
    pub fn builder(
        application: impl Into<String>,
        table: impl LeaseTable,
        source: impl Source,
        factory: impl ProcessorFactory,
    ) -> WorkerBuilder {
        let sources = BTreeMap::from([(None, Arc::new(source) as Arc<dyn Source>)]);
        WorkerBuilder::new(application.into(), Arc::new(table), sources, Arc::new(factory))
    }

    /// Sets up a worker that reads several streams.
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
            #[expect(clippy::expect_used, reason = "replaced by what was given, once it is read")]
            application: "unnamed".parse().expect("a name"),
            table,
            factory,
            options,
            initial: InitialPosition::default(),
            retrieval: Retrieval::default(),
            pace: Pace { most_records: 10_000, idle: Duration::from_secs(1) },
            checkpoints: Checkpoints::default(),
            empty_batches: false,
            batch_limit: None,
            restarts: None,
            failures: Some(MOST_FAILURES),
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
            name: None,
            weight: 1,
            most: None,
            replaces: None,
            clock: None,
            seed: None,
            #[cfg(feature = "kcl")]
            beside: None,
            settings,
        }
    }

    /// Names the worker; by default by host, process and chance. Two that are there at once must
    /// not have one name. A name that a restarted worker has again, such as a slot's in a
    /// `StatefulSet`, brings its shards back to it.
    pub fn with_name(mut self, name: Lessee) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the ttl of its leases and how they are kept: by default 10 s, as in the Kinesis Client
    /// Library. A crashed worker's shards are read again after a ttl and a third of it.
    pub fn with_options(mut self, options: LeaseOptions) -> Self {
        self.settings.options = options;
        self
    }

    /// Where to begin with shards that nobody has read: by default with what arrives from now on, by
    /// this worker's clock: a clock that is ahead by a minute skips the first minute of records, one
    /// that is behind delivers the minute before. Start with an explicit time if clocks are not kept. A
    /// time must not be in the future. A shard that has a row is begun with where that says, whatever
    /// is set here later: where its row has a time and this says otherwise, that is warned of.
    pub fn with_initial_position(mut self, initial: InitialPosition) -> Self {
        self.settings.initial = initial;
        self
    }

    /// How records are had: by default by polling.
    pub fn with_retrieval(mut self, retrieval: Retrieval) -> Self {
        self.settings.retrieval = retrieval;
        self
    }

    /// Gives a processor at most `records` at a time, 1 to 10,000; by default 10,000. An aggregate
    /// counts as one.
    ///
    /// This bounds memory: a fetch is up to 10 MB, and each shard that is behind has one batch in
    /// memory. The number of fetches at once is not limited, so 100 such shards take up to 1 GB. Set
    /// this to the records of the memory that a shard may take, or limit
    /// [the shards of a worker](Self::with_max_shards).
    pub fn with_max_records(mut self, records: u16) -> Self {
        self.settings.pace.most_records = records;
        self
    }

    /// Waits for `idle` before it asks again a shard that had nothing new. By default 1 s; at least
    /// 200 ms. A shard that is behind is read without this pause.
    pub fn with_idle_pause(mut self, idle: Duration) -> Self {
        self.settings.pace.idle = idle;
        self
    }

    /// Says who decides when checkpoints are made: by default the processor.
    pub fn with_checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.settings.checkpoints = checkpoints;
        self
    }

    /// Gives processors batches without records, too, so that they learn how far behind they are.
    pub fn with_empty_batches(mut self) -> Self {
        self.settings.empty_batches = true;
        self
    }

    /// Breaks any call of a processor off that takes longer than `limit`: a batch, its beginning, the
    /// shard's end, its last words. All but the last begin again at the checkpoint, with a new
    /// processor. Without this, a processor may take as long as it likes: its lease is kept.
    pub fn with_batch_limit(mut self, limit: Duration) -> Self {
        self.settings.batch_limit = Some(limit);
        self
    }

    /// Gives a shard up for a while after its processor was made anew `restarts` times without
    /// getting to a checkpoint, since it panicked, took too long, could not begin, or [wanted
    /// that](crate::NeedsRestart). Without this, it goes on trying.
    pub fn with_max_restarts(mut self, restarts: u32) -> Self {
        self.settings.restarts = Some(restarts);
        self
    }

    /// Gives a shard up for a while, as [`StopShard`](crate::Outcome::StopShard) does, after the same
    /// batch [failed](crate::Outcome::Failed) `failures` times in a row without a checkpoint. A new
    /// processor then begins at the checkpoint, on this worker or another.
    ///
    /// By default 30: with the default backoff, the shard is given up after 23 minutes. A database
    /// that fails over or a deployment takes less; a fault that lasts longer may be of this machine or
    /// of the processor's state. `None` retries for ever.
    pub fn with_max_failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.settings.failures = failures.into();
        self
    }

    /// Waits for `first` after a failure, twice that after the next, up to `last`. By default 500 ms
    /// and a minute.
    pub fn with_backoff(mut self, first: Duration, last: Duration) -> Self {
        (self.settings.first_backoff, self.settings.last_backoff) = (first, last);
        self
    }

    /// Waits for `settling`, but not longer than a third of the ttl, before it obtains more than one
    /// shard: those that begin together then share them at once, instead of giving them to each other.
    /// By default 1 s; at least 10 ms, for a worker that is alone.
    pub fn with_settling(mut self, settling: Duration) -> Self {
        self.settings.settling = settling;
        self
    }

    /// Gives the worker `grace` to hand over all it has, once it is to stop, and to end: it takes no
    /// longer, whatever hangs. An eighth of it, 2 s at most, is kept for shards that are given up as
    /// they are, and for its own row. By default 30 s, as long as Kubernetes gives a pod.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Reads `most` shards at most. The others of the application know.
    pub fn with_max_shards(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// Hands over `most` shards at a time: for processors that take long to begin. By default all
    /// that are another's.
    pub fn with_max_hand_overs(mut self, most: usize) -> Self {
        self.settings.most_hand_overs = Some(most);
        self
    }

    /// Takes on `weight` times what a worker of weight 1 does; 1 to 1,000.
    pub fn with_weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    /// Takes the place of `worker`, which is about to stop: gets nothing while that one stays, and
    /// all of its shards when it goes. A rolling deployment then moves each shard once.
    pub fn replacing(mut self, worker: Lessee) -> Self {
        self.replaces = Some(worker);
        self
    }

    /// Compares the stream's shards with their rows every `interval`: by default every minute. What a
    /// shard became is found at its end, and does not wait for this.
    pub fn with_sync_interval(mut self, interval: Duration) -> Self {
        self.settings.sync_interval = interval;
        self
    }

    /// Shares `table`, which is the one that the worker was given, with workers of the Kinesis
    /// Client Library 1 and 2: counts them as they count each other, leaves them their share, and
    /// takes from them what makes up its own, `most_steals` at a time.
    ///
    /// Their own default is 1 at a time (`maxLeasesToStealAtOneTime`), every two failover times. A
    /// theft is abrupt: what was worked on since the last checkpoint is worked on again. With 0,
    /// only what is free is taken. The ttl must be no longer than the table's failover time.
    #[cfg(feature = "kcl")]
    pub fn beside_kcl(mut self, table: &crate::KclTable, most_steals: usize) -> Self {
        self.beside = Some(crate::kcl::Beside::new(table.clone(), most_steals));
        self
    }

    /// Reads lease time from `clock`: for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Reads the time of day from `clock`, in milliseconds since 1970: for tests. It says where
    /// [`InitialPosition::Latest`] is.
    pub fn with_wall_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.settings.wall_clock = Arc::new(clock);
        self
    }

    /// Makes all its choices follow from `seed`: for simulations.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The worker, which begins with [`run`](Worker::run).
    ///
    /// # Errors
    ///
    /// Where a value is out of range: nothing has been sent then.
    pub fn build(self) -> Result<Worker, InvalidSetup> {
        let application: Application = self.application.parse().map_err(Fault::from)?;
        self.check()?;
        let mut settings = self.settings;
        settings.application = application;
        let mut locker =
            Locker::new(Arc::clone(&settings.table)).with_options(settings.options.clone());
        if let Some(clock) = self.clock {
            locker = locker.with_clock(clock);
        }
        if let Some(seed) = self.seed {
            locker = locker.with_seed(seed);
        }
        if let Some(name) = self.name {
            locker = locker.with_lessee(name);
        }
        let mut me = Member::new(locker.lessee().clone());
        (me.weight, me.most, me.replaces) = (self.weight, self.most, self.replaces);
        let own_key = settings.application.worker(&me.name).map_err(Fault::from)?;
        let settings = Arc::new(settings);
        let sync = ShardSync::new(Arc::clone(&settings), self.sources);
        #[cfg_attr(not(feature = "kcl"), expect(unused_mut, reason = "it has no neighbours then"))]
        let mut worker = Worker::new(settings, sync, locker, me, own_key);
        #[cfg(feature = "kcl")]
        {
            worker.beside = self.beside;
        }
        Ok(worker)
    }

    fn check(&self) -> Result<(), InvalidSetup> {
        let settings = &self.settings;
        let rules = [
            ((1..=1000).contains(&self.weight), "a weight is 1 to 1000"),
            (self.most != Some(0), "a worker reads one shard at least"),
            (self.replaces.is_none() || self.replaces != self.name, "no worker replaces itself"),
            (!self.sources.is_empty(), "no stream to read: name one at least"),
            ((1..=10_000).contains(&settings.pace.most_records), "max records is 1 to 10000"),
            (settings.pace.idle >= SHORTEST_IDLE, "the idle pause is 200 ms at least"),
            (
                settings.batch_limit != Some(Duration::ZERO),
                "a batch limit of zero ends every batch",
            ),
            (settings.failures != Some(0), "max failures is 1 at least"),
            (settings.most_hand_overs != Some(0), "max hand-overs is 1 at least"),
            (!settings.first_backoff.is_zero(), "the first backoff is not zero"),
            (
                settings.first_backoff <= settings.last_backoff,
                "the first backoff is the shorter one",
            ),
            (settings.last_backoff <= LONGEST_BACKOFF, "the last backoff is an hour at most"),
            (settings.settling >= SHORTEST_SETTLING, "settling takes 10 ms at least"),
            (!settings.sync_interval.is_zero(), "the sync interval is not zero"),
            (
                !matches!(settings.initial, InitialPosition::AtTimestamp(at) if i64::try_from(at).is_err()),
                "a timestamp is in milliseconds since 1970, and no later than those are counted",
            ),
        ];
        if let Some((_, rule)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(InvalidSetup(Fault::Range(rule.to_owned())));
        }
        if let InitialPosition::AtTimestamp(at) = settings.initial {
            let now = (settings.wall_clock)();
            if at > now {
                // Nothing arrived then, and each row would keep that time though it is corrected.
                let rule = format!(
                    "a timestamp is in milliseconds since 1970, and not in the future: {at} is \
                     after {now}, which is now"
                );
                return Err(InvalidSetup(Fault::Range(rule)));
            }
        }
        #[cfg(feature = "kcl")]
        if let Some(beside) = &self.beside
            && settings.options.ttl() > beside.table.failover_time()
        {
            let rule = "the ttl is no longer than KCL's failover time: its workers go by that";
            return Err(InvalidSetup(Fault::Range(rule.to_owned())));
        }
        Ok(())
    }
}

impl From<Fault> for InvalidSetup {
    fn from(fault: Fault) -> Self {
        Self(fault)
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

#[expect(clippy::disallowed_methods, reason = "where a stream is begun with, not lease time")]
fn millis_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// With the default backoff: 63.5 s until the seventh pause, then one try a minute.
const MOST_FAILURES: u32 = 30;

const SHORTEST_SETTLING: Duration = Duration::from_millis(10);

const SHORTEST_IDLE: Duration = Duration::from_millis(200);

const LONGEST_BACKOFF: Duration = Duration::from_hours(1);
