//! The handle that users hold.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Mutex;
use tracing::{Instrument, Span, debug_span};

use crate::attempt::{Ask, Attempt, attempt};
use crate::clock::{Clock, Moment, sleep_until};
use crate::error::{StoreError, StoreErrorKind};
use crate::grant::Holder;
use crate::handover::HandOver;
use crate::home::{Home, Runtime, runtime_has_ended};
use crate::key::{LeaseKey, Lessee};
use crate::lease::Lease;
use crate::metrics::{Guarded, Metrics};
use crate::options::LeaseOptions;
use crate::outstanding::Outstanding;
use crate::queue::Queue;
use crate::random::Random;
use crate::retry::within;
use crate::settings::Settings;
use crate::store::LockStore;
use crate::thread::OwnThread;
use crate::unsettled::UnsettledClaims;
use crate::waiting::contend;
use crate::watchdog::Watchdog;

/// Obtains leases from a store and keeps them alive.
///
/// Make one per process and store, and clone it: clones share one lessee, one heartbeater and
/// one queue of waiters per key. The heartbeater is a task on the runtime on which the locker
/// first obtains something; it ends with the last clone and lease.
///
/// # Cancel safety
///
/// Any of these futures may be dropped at any time. What was granted meanwhile is released, by
/// a task that goes on until the store has answered or the ttl has passed;
/// [`close`](Self::close) waits for it. Dropping a waiting future loses its place in the queue.
/// One that is neither polled nor dropped stands still: it keeps its place in the queue, and a key
/// that was granted to it is free again after a ttl. (On another runtime than the locker's it goes
/// on by itself, and its lease is kept alive until it is polled or dropped.)
/// For a timeout, wrap the call into `tokio::time::timeout`.
///
/// # Errors
///
/// That somebody else holds the key is never an error. A [`StoreError`] says that the outcome
/// is unknown. A locker whose runtime has ended starts another heartbeater on the runtime of the next
/// call; one that was given a runtime answers [`Misconfigured`](StoreErrorKind::Misconfigured).
///
/// # Panics
///
/// Where it waits outside a tokio runtime, or in one that was built without timers
/// (`enable_time`).
#[derive(Debug, Clone)]
pub struct Locker {
    settings: Arc<Settings>,
    runtime: Runtime,
    household: Arc<Household>,
}

/// What clones share.
#[derive(Debug, Default)]
struct Household {
    /// The last that was started; another is, once its runtime has ended.
    home: StdMutex<Option<Home>>,
    queue: Arc<Queue>,
    outstanding: Outstanding,
    /// What callers do themselves, as long as they poll it.
    undertakings: Outstanding,
    unsettled: Arc<UnsettledClaims>,
}

impl Locker {
    /// A locker on `store`, with default options, whose lessee is `host-pid-8hex`.
    pub fn new(store: impl LockStore) -> Self {
        Self::from(Settings::new(Arc::new(store)), Runtime::Callers)
    }

    /// A locker on the store that `connect` makes, both on a thread of their own.
    ///
    /// The thread runs the heartbeats and drives the connections that `connect` opens. So leases are
    /// kept alive although the application blocks every thread of its runtime for longer than a ttl. Use
    /// it where work computes for long between awaits, or calls what blocks, and cannot be moved to
    /// `spawn_blocking`. It costs one thread with about 80 KiB of memory, and each call goes to that
    /// thread and back.
    ///
    /// Work that is stuck keeps its keys, too: see [`with_watchdog`](Self::with_watchdog).
    ///
    /// The thread ends after the last clone of the locker, the last lease and the last release that is on
    /// its way. A clone of the store that the application uses on its own runtime may open connections
    /// there: connect another store for that.
    ///
    /// # Errors
    ///
    /// Those of `connect`; [`Misconfigured`](StoreErrorKind::Misconfigured), where no thread or runtime
    /// can be started, or `connect` panics.
    ///
    /// # Cancel safety
    ///
    /// Safe: the thread ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use lease_core::{LeaseOptions, Locker, StoreError};
    /// use lease_memory::MemoryStore;
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     // With Redis: async || RedisStore::connect("redis://127.0.0.1:6379").await
    ///     let locker = Locker::on_own_thread(async || Ok::<_, StoreError>(MemoryStore::new()))
    ///         .await?
    ///         .with_options(LeaseOptions::new(Duration::from_millis(300))?)
    ///         .with_watchdog(Duration::from_secs(60));
    ///     let lease = locker.wait_until_obtained(&"report".parse()?).await?;
    ///
    ///     std::thread::sleep(Duration::from_secs(1)); // blocks the only thread of this runtime
    ///     locker.alive();
    ///
    ///     assert!(lease.is_held());
    ///     lease.release().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn on_own_thread<S, E>(
        connect: impl AsyncFnOnce() -> Result<S, E> + Send + 'static,
    ) -> Result<Self, E>
    where
        S: LockStore,
        E: From<StoreError> + Send + 'static,
    {
        let (thread, store) = OwnThread::start(connect).await?;
        Ok(Self::from(Settings::new(Arc::new(store)), Runtime::Thread(thread)))
    }

    fn from(settings: Settings, runtime: Runtime) -> Self {
        Self { settings: Arc::new(settings), runtime, household: Arc::default() }
    }

    fn with(&self, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::clone(&self.settings);
        set(&mut settings);
        Self::from(settings, self.runtime.clone())
    }

    /// A locker for `lessee`, with a heartbeater of its own.
    #[must_use]
    pub fn with_lessee(self, lessee: Lessee) -> Self {
        self.with(|settings| settings.lessee = lessee)
    }

    /// A locker with `options`, with a heartbeater of its own.
    #[must_use]
    pub fn with_options(self, options: LeaseOptions) -> Self {
        self.with(|settings| settings.options = options)
    }

    /// A locker that tells `metrics` what happens, with a heartbeater of its own.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn Metrics>) -> Self {
        self.with(|settings| settings.metrics = Arc::new(Guarded(metrics)))
    }

    /// A locker that reads lease time from `clock`: for tests.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| settings.clock = clock)
    }

    /// A locker whose nonces, jitter and shuffles all follow from `seed`: for tests. Two
    /// lockers with one seed on one store take each other's leases for their own.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.with(|settings| settings.random = Arc::new(Random::from_seed(seed)))
    }

    /// A locker whose heartbeater lives on `runtime`.
    ///
    /// Requests are made there, too. The store's connections stay on the runtime on which the store was
    /// connected: where the application blocks that one, no heartbeat is answered. To have both on a
    /// thread that the application does not use, see [`on_own_thread`](Self::on_own_thread).
    #[must_use]
    pub fn with_runtime(self, runtime: Handle) -> Self {
        Self::from(Settings::clone(&self.settings), Runtime::Given(runtime))
    }

    /// Stops heartbeats while the application has not called [`alive`](Self::alive) for `limit`, so
    /// that work which is stuck does not keep its keys for ever. Off by default.
    ///
    /// Leases then run out as if the store were out of reach, and the log says why. Heartbeats go on with
    /// the next call, for what has not run out by then. Counts from this call on. Lockers that are
    /// made from this one share the limit: a call to `alive` of any counts for all.
    #[must_use]
    pub fn with_watchdog(self, limit: Duration) -> Self {
        self.with(|settings| {
            let watchdog = Watchdog::new(limit, settings.clock.now());
            settings.watchdog = Some(Arc::new(watchdog));
        })
    }

    /// Says that the application is alive, for [`with_watchdog`](Self::with_watchdog).
    ///
    /// Cheap, and needs no runtime. Call it where work makes progress, and not from a task that only
    /// does this.
    pub fn alive(&self) {
        if let Some(watchdog) = &self.settings.watchdog {
            watchdog.alive(self.settings.clock.now());
        }
    }

    /// Who asks.
    pub fn lessee(&self) -> &Lessee {
        &self.settings.lessee
    }

    /// How leases are kept.
    pub fn options(&self) -> &LeaseOptions {
        &self.settings.options
    }

    /// Makes one attempt to obtain `key`.
    ///
    /// The store is asked once. If its answer is lost or unclear, that is the error, and the next
    /// attempt of this locker at the key goes on with the same claim. If none is made, a task
    /// finds out whether the key was granted, and releases it; it asks again for that, so the key
    /// may be held by nobody for a moment.
    ///
    /// # Errors
    ///
    /// Where the store could not say, or took longer than a
    /// [request may](LeaseOptions::request_timeout).
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`].
    pub async fn obtain(&self, key: &LeaseKey) -> Result<Attempt, StoreError> {
        let span = self.span("obtain", key);
        async {
            let start = self.settings.clock.now();
            let attempt = self.attempt(Ask::Obtain(key.clone())).await?;
            if let Attempt::Obtained(lease) = &attempt {
                self.count(lease, start);
            }
            Ok(attempt)
        }
        .instrument(span)
        .await
    }

    /// Waits until `key` is obtained, for as long as it takes.
    ///
    /// Waiters of one locker stand in line for a key, in the order in which they came, and the
    /// first of them contends with other processes. It is woken by a release, where the store
    /// can; otherwise it asks again when the holder's lease runs out, and every
    /// [`poll_interval`](LeaseOptions::poll_interval). When a lease runs out, waiters of all processes ask
    /// again within the next 20 ms, once each. Between lockers there is no order: whoever
    /// releases and asks again may well be first. A task that waits for a key which it holds
    /// itself waits for ever.
    ///
    /// # Errors
    ///
    /// Where asking again would not help. What may pass is tried again, after a pause.
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`]; loses the place in the queue.
    pub async fn wait_until_obtained(&self, key: &LeaseKey) -> Result<Lease, StoreError> {
        let span = self.span("wait_until_obtained", key);
        self.wait(std::slice::from_ref(key)).instrument(span).await
    }

    /// Obtains any one of `keys`, tried in random order, so that lessees spread out; `None`
    /// where all are held, or none was given.
    ///
    /// To hold at most so many at once, let so many tasks share a locker and obtain one each.
    ///
    /// # Errors
    ///
    /// Where none was obtained, and the store could not say for one of them: the last such
    /// error. One key's error does not keep the others from being tried.
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`].
    pub async fn obtain_any(&self, keys: &[LeaseKey]) -> Result<Option<Lease>, StoreError> {
        let start = self.settings.clock.now();
        let mut unknown = None;
        for key in self.shuffled(keys) {
            let span = self.span("obtain_any", key);
            match self.attempt(Ask::Obtain(key.clone())).instrument(span).await {
                Ok(Attempt::Obtained(lease)) => {
                    self.count(&lease, start);
                    return Ok(Some(lease));
                }
                Ok(Attempt::Held(_)) => (),
                Err(error) => unknown = Some(error),
            }
        }
        unknown.map_or(Ok(None), Err)
    }

    /// Waits until any one of `keys` is obtained, for as long as it takes.
    ///
    /// Waits in line for each as [`wait_until_obtained`](Self::wait_until_obtained) does, but
    /// obtains only one, however many become free. An empty slice is refused.
    ///
    /// # Errors
    ///
    /// Where asking again would not help, for any of the keys; at once, where `keys` is empty.
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`]; loses the places in the queues.
    pub async fn wait_until_any_obtained(&self, keys: &[LeaseKey]) -> Result<Lease, StoreError> {
        if keys.is_empty() {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "no key was given: waiting for any of none would never end",
            ));
        }
        let span = debug_span!(
            "lease",
            call = "wait_until_any_obtained",
            key = tracing::field::Empty,
            lessee = %self.lessee(),
            token = tracing::field::Empty,
        );
        self.wait(keys).instrument(span).await
    }

    /// Takes up a lease that another process handed over; `None` where it was taken up before,
    /// or ran out.
    ///
    /// The lease is this locker's from here on: its lessee, its options, a new token.
    ///
    /// # Errors
    ///
    /// Where the store could not say. Call again with the same hand-over: if this call took it up
    /// without knowing, the next one of this locker recognises that.
    ///
    /// # Cancel safety
    ///
    /// Safe: what was taken up meanwhile is released, and is then lost to the hand-over.
    pub async fn resume(&self, handed: HandOver) -> Result<Option<Lease>, StoreError> {
        let span = self.span("resume", handed.key());
        let start = self.settings.clock.now();
        match self.attempt(Ask::Adopt(handed.into_grant())).instrument(span).await? {
            Attempt::Obtained(lease) => {
                self.count(&lease, start);
                Ok(Some(lease))
            }
            Attempt::Held(_) => Ok(None),
        }
    }

    /// Tells who holds `key`; `None` where nobody does, also while it is reserved.
    ///
    /// Old news when it arrives: obtain the key to be sure.
    ///
    /// # Errors
    ///
    /// Where the store could not say, or took longer than a
    /// [request may](LeaseOptions::request_timeout).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let (settings, key) = (Arc::clone(&self.settings), key.clone());
        let ask = async move {
            let limit = settings.options.request_timeout();
            within(limit, settings.store.holder(&key)).await
        };
        self.home()?.run_until_dropped(ask).await
    }

    /// Waits until everything that was dropped so far has been released: for the end of `main`.
    ///
    /// Leases that are still held are not touched, and what other tasks begin meanwhile is not
    /// waited for. An attempt that is being made is, for as long as a
    /// [request may take](LeaseOptions::request_timeout): its task may have been aborted. With the
    /// store out of reach it takes two ttls at most: one to find out whether a key was granted, one
    /// to give it back. What was not released by then is free by itself. The locker can be used on.
    ///
    /// Tasks on this locker's runtime send the releases. A `current_thread` runtime runs tasks only within
    /// its `block_on`: a call from elsewhere does not return before then. It has no limit, since a limit
    /// needs a timer, which the caller's runtime may not have. A locker
    /// [on its own thread](Self::on_own_thread) does not depend on the caller's runtime.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only waits.
    pub async fn close(&self) {
        let home = self.last_home().clone();
        // Where there is none, nothing was begun.
        if let Some(home) = home {
            home.with_timers(self.until_closed()).await;
        }
    }

    async fn until_closed(&self) {
        let Household { outstanding, undertakings, .. } = &*self.household;
        let (clock, limit) = (&*self.settings.clock, self.settings.options.request_timeout());
        select! {
            biased;
            () = undertakings.done() => (),
            // One that goes on for longer is kept by somebody who does not poll it, and who may be
            // waiting for this.
            () = sleep_until(clock, clock.now() + limit, limit) => (),
        }
        // Attempts first; then what clears up after those that came to nothing; then the releases of
        // what either was granted, for nobody.
        for _each in 0..3 {
            outstanding.done().await;
        }
    }

    async fn wait(&self, keys: &[LeaseKey]) -> Result<Lease, StoreError> {
        let start = self.settings.clock.now();
        let home = self.home()?;
        let keys: Vec<_> = self.shuffled(keys).into_iter().cloned().collect();
        let (settings, household) = (Arc::clone(&self.settings), Arc::clone(&self.household));
        let contest = {
            let home = home.clone();
            async move {
                let one_at_a_time = Mutex::new(());
                let Household { queue, unsettled, .. } = &*household;
                let mut contenders: FuturesUnordered<_> = keys
                    .iter()
                    .map(|key| contend(&settings, &home, queue, unsettled, key, &one_at_a_time))
                    .collect();
                contenders.next().await.unwrap_or_else(|| Err(runtime_has_ended()))
            }
        };
        let lease = home.run_until_dropped(contest.instrument(Span::current())).await?;
        self.count(&lease, start);
        Ok(lease)
    }

    async fn attempt(&self, ask: Ask) -> Result<Attempt, StoreError> {
        attempt(&self.settings, &self.home()?, &self.household.unsettled, ask).await
    }

    fn home(&self) -> Result<Home, StoreError> {
        let mut last = self.last_home();
        if let Some(home) = last.as_ref().filter(|home| !home.is_gone()) {
            return Ok(home.clone());
        }
        let Household { outstanding, undertakings, .. } = &*self.household;
        let (outstanding, undertakings) = (outstanding.clone(), undertakings.clone());
        let home = Home::start(&self.settings, &self.runtime, outstanding, undertakings)?;
        *last = Some(home.clone());
        // It was given a runtime that has ended.
        if home.is_gone() {
            return Err(runtime_has_ended());
        }
        Ok(home)
    }

    fn last_home(&self) -> MutexGuard<'_, Option<Home>> {
        self.household.home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, lease: &Lease, start: Moment) {
        let waited: Duration = self.settings.clock.now().since(start);
        Span::current()
            .record("key", tracing::field::display(lease.key()))
            .record("token", lease.token().get());
        self.settings.metrics.obtained(lease.key(), waited);
        tracing::debug!(
            key = %lease.key(), lessee = %lease.lessee(), token = %lease.token(), ?waited,
            "lease obtained"
        );
    }

    fn shuffled<'a>(&self, keys: &'a [LeaseKey]) -> Vec<&'a LeaseKey> {
        let mut keys: Vec<_> = keys.iter().collect();
        self.settings.random.shuffle(&mut keys);
        keys
    }

    fn span(&self, call: &'static str, key: &LeaseKey) -> Span {
        debug_span!(
            "lease", call, %key, lessee = %self.lessee(), token = tracing::field::Empty
        )
    }
}
