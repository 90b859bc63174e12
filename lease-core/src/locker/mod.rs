//! The locker: obtains leases from a store.

mod setup;
pub(crate) mod wait_in_turn;
mod waiting;

#[cfg(test)]
mod readings;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tracing::{Instrument, Level, Span, debug_span, event_enabled};

use crate::acquire::attempt::Attempt;
use crate::acquire::contended_keys::ContendedKeys;
use crate::acquire::pending_attempt::{Request, attempt};
use crate::acquire::unsettled::UnsettledClaims;
use crate::clock::{Moment, sleep_until};
use crate::error::StoreError;
use crate::heartbeat::locker_runtime::{LockerRuntime, Runtime, runtime_has_ended};
use crate::key::{LeaseKey, Lessee};
use crate::lease::Lease;
use crate::lease::hand_over::HandOver;
use crate::metrics::StoreOperation;
use crate::options::LeaseOptions;
use crate::runtime::own_thread::OwnThread;
use crate::runtime::requests_in_flight::RequestsInFlight;
use crate::settings::Settings;
use crate::store::grant::Holder;
use crate::store::lock_store::LockStore;
use crate::waiter_queue::Queue;

/// Obtains leases from a store and extends them by heartbeats.
///
/// Make one locker per process and store, and clone it. Clones share one lessee, one heartbeater and one
/// queue of waiters per key. The heartbeater is a task on the runtime of the locker's first request, until
/// the last clone and the last lease are dropped.
///
/// # Cancel safety
///
/// Every future of a locker may be dropped at any time. If the store grants a key after the drop, a
/// task releases the key. The task runs until the store has answered or the ttl has passed, and
/// [`close`](Self::close) waits for the task. A dropped waiter loses its place in the queue. For a
/// timeout, use `tokio::time::timeout`.
///
/// A future that is neither polled nor dropped makes no progress, and keeps its place in the queue. A key
/// that was granted to this future is free after a ttl. For a caller on another runtime, a task runs the
/// request, and heartbeats extend the lease until the future is polled or dropped.
///
/// # Errors
///
/// A key that another lessee holds is never an error. A [`StoreError`] means that the outcome is unknown.
///
/// A locker whose runtime has ended starts another heartbeater on the runtime of the next call. A
/// locker [`with_runtime`](Self::with_runtime) returns
/// [`Misconfigured`](crate::StoreErrorKind::Misconfigured) instead.
///
/// # Panics
///
/// In a tokio runtime that was built without timers (`enable_time`).
///
/// # Examples
///
/// ```
/// use lease_core::{Attempt, Locker};
/// use lease_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let locker = Locker::new(store.clone());
/// let other = Locker::new(store); // in another process, on a store that both can reach
/// let key = "payroll".parse()?;
///
/// let lease = locker.wait_until_obtained(&key).await?;
/// match other.obtain(&key).await? {
///     Attempt::Obtained(lease) => println!("obtained with token {}", lease.token()),
///     Attempt::Held(holder) => assert_eq!(&holder.lessee, locker.lessee()),
/// }
/// lease.release().await?;
///
/// let later = other.wait_until_obtained(&key).await?;
/// drop(later); // releases the key in the background
/// other.close().await; // waits for this release
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Locker {
    pub(crate) settings: Arc<Settings>,
    runtime: Runtime,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The locker replaces a runtime that has ended.
    runtime: Mutex<Option<LockerRuntime>>,
    queue: Arc<Queue>,
    in_tasks: RequestsInFlight,
    in_callers: RequestsInFlight,
    unsettled: Arc<UnsettledClaims>,
    contended: ContendedKeys,
}

impl Locker {
    /// Makes a locker on `store`, with default options and the lessee `host-pid-8hex`.
    pub fn new(store: impl LockStore) -> Self {
        Self::from(Settings::new(Arc::new(store)), Runtime::Callers)
    }

    /// Starts a thread, connects a store there with `connect`, and makes a locker that runs on this thread.
    ///
    /// The thread sends the heartbeats and drives the connections that `connect` opens. So leases are
    /// extended while the application blocks all threads of its runtime for longer than a ttl. Use this
    /// locker for work that blocks and cannot move to `spawn_blocking`. The thread takes about 80 KiB of
    /// memory, and each call passes between two threads.
    ///
    /// On a shared runtime, leases are extended in time if each poll of a task takes at most a thousandth
    /// of the ttl.
    ///
    /// Stuck work also keeps its keys: [`with_watchdog`](Self::with_watchdog) limits how long.
    ///
    /// The thread ends with the last clone of the locker, the last lease and the last unanswered release.
    /// On another runtime, use a second store, because a clone may open connections there.
    ///
    /// # Errors
    ///
    /// The errors of `connect`. [`Misconfigured`](crate::StoreErrorKind::Misconfigured), if no thread or
    /// runtime can be started, or if `connect` panics.
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
        Self { settings: Arc::new(settings), runtime, shared: Arc::default() }
    }

    pub(crate) fn with(&self, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::clone(&self.settings);
        set(&mut settings);
        Self::from(settings, self.runtime.clone())
    }

    /// Reports that the application makes progress, for [`with_watchdog`](Self::with_watchdog).
    ///
    /// Call this method from the work itself, not from a separate task. The call needs no runtime.
    pub fn alive(&self) {
        if let Some(watchdog) = &self.settings.watchdog {
            watchdog.alive(self.settings.clock.now());
        }
    }

    /// The name under which this locker obtains leases.
    pub fn lessee(&self) -> &Lessee {
        &self.settings.lessee
    }

    /// The options of this locker's leases.
    pub fn options(&self) -> &LeaseOptions {
        &self.settings.options
    }

    /// Makes one attempt to obtain `key`.
    ///
    /// The locker sends one request. After an error, the next attempt of this locker at the key
    /// continues the same claim. If no attempt follows, a task repeats the claim and releases the
    /// key. Meanwhile, the key may be held without a lease.
    ///
    /// # Errors
    ///
    /// If the store returned an error, or took longer than the [request
    /// timeout](LeaseOptions::request_timeout).
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`].
    pub async fn obtain(&self, key: &LeaseKey) -> Result<Attempt, StoreError> {
        let span = self.span("obtain", key);
        async {
            let start = self.settings.clock.now();
            let attempt = self.attempt(Request::Obtain(key.clone()), start).await;
            self.count_attempt(key, &attempt, start);
            attempt
        }
        .instrument(span)
        .await
    }

    /// Obtains any one of `keys`. Returns `None` if all are held, or if `keys` is empty.
    ///
    /// The locker tries the keys in random order. To hold at most `n` keys at once, let `n` tasks
    /// share a locker and obtain one key each.
    ///
    /// # Errors
    ///
    /// The last error of an attempt, if no key was obtained. After an error, the locker still tries
    /// the other keys.
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`].
    pub async fn obtain_any(&self, keys: &[LeaseKey]) -> Result<Option<Lease>, StoreError> {
        let (mut start, mut unknown) = (None, None);
        for key in self.shuffled(keys) {
            let span = self.span("obtain_any", key);
            let now = self.settings.clock.now();
            let attempt = self.attempt(Request::Obtain(key.clone()), now).instrument(span).await;
            self.count_attempt(key, &attempt, *start.get_or_insert(now));
            match attempt {
                Ok(Attempt::Obtained(lease)) => return Ok(Some(lease)),
                Ok(Attempt::Held(_)) => (),
                Err(error) => unknown = Some(error),
            }
        }
        unknown.map_or(Ok(None), Err)
    }

    /// Resumes a lease that another process handed over. Returns `None` if the hand-over was
    /// resumed before, or has expired.
    ///
    /// The resumed lease has the lessee and the options of this locker, and a new token.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. Call again with the same hand-over: if the store applied the
    /// earlier request, this locker gets the same grant.
    ///
    /// # Cancel safety
    ///
    /// Safe: a task releases a lease that was resumed meanwhile. The hand-over cannot be resumed again.
    pub async fn resume(&self, handed: HandOver) -> Result<Option<Lease>, StoreError> {
        let (span, key) = (self.span("resume", handed.key()), handed.key().clone());
        let start = self.settings.clock.now();
        let ask = Request::Adopt(handed.into_grant());
        let attempt = self.attempt(ask, start).instrument(span).await;
        self.count_attempt(&key, &attempt, start);
        Ok(attempt?.into_lease())
    }

    /// Returns the holder of `key`. Returns `None` if the key has no holder, also while the key is
    /// reserved.
    ///
    /// The answer may be outdated. To be sure, obtain the key.
    ///
    /// # Errors
    ///
    /// If the store returned an error, or took longer than the [request
    /// timeout](LeaseOptions::request_timeout).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let (settings, key) = (Arc::clone(&self.settings), key.clone());
        let ask =
            async move { settings.ask(StoreOperation::Holder, settings.store.holder(&key)).await };
        self.locker_runtime()?.run_until_dropped(ask).await
    }

    /// Waits until all leases and attempts that were dropped before are released. Call `close` at the end
    /// of `main`.
    ///
    /// Leases that are still held stay held, and the locker can be used afterwards. The call does not wait
    /// for requests that other tasks start meanwhile. If a caller keeps a request unpolled, `close` waits
    /// for this request for at most one [request timeout](LeaseOptions::request_timeout).
    ///
    /// If the store is out of reach, the call takes at most two ttls: one to learn whether a key was
    /// granted, and one to release the key.
    ///
    /// Tasks on this locker's runtime send the releases. A `current_thread` runtime runs tasks only
    /// within its `block_on`, so the call may wait without a limit for a `block_on`. A locker [on
    /// its own thread](Self::on_own_thread) does not depend on the caller's runtime.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn close(&self) {
        let runtime = self.last_runtime().clone();
        if let Some(runtime) = runtime {
            runtime.with_timers(self.until_closed()).await;
        }
    }

    async fn until_closed(&self) {
        let Shared { in_tasks, in_callers, .. } = &*self.shared;
        let (clock, limit) = (&*self.settings.clock, self.settings.options.request_timeout());
        select! {
            biased;
            () = in_callers.ended() => (),
            // A caller may keep an attempt unpolled until this call ends, so this wait has a limit.
            () = sleep_until(clock, clock.now() + limit, limit) => (),
        }
        // An attempt may leave its claim to a cleanup task. The cleanup may obtain a lease that no
        // caller waits for. A third task releases this lease.
        for _each in 0..3 {
            in_tasks.ended().await;
        }
    }

    async fn attempt(&self, ask: Request, now: Moment) -> Result<Attempt, StoreError> {
        attempt(&self.settings, &self.locker_runtime()?, &self.shared.unsettled, ask, now).await
    }

    fn locker_runtime(&self) -> Result<LockerRuntime, StoreError> {
        let mut last = self.last_runtime();
        if let Some(runtime) = last.as_ref().filter(|runtime| !runtime.has_ended()) {
            return Ok(runtime.clone());
        }
        let Shared { in_tasks, in_callers, .. } = &*self.shared;
        let (in_tasks, in_callers) = (in_tasks.clone(), in_callers.clone());
        let runtime = LockerRuntime::start(&self.settings, &self.runtime, in_tasks, in_callers)?;
        *last = Some(runtime.clone());
        if runtime.has_ended() {
            return Err(runtime_has_ended());
        }
        Ok(runtime)
    }

    fn last_runtime(&self) -> MutexGuard<'_, Option<LockerRuntime>> {
        self.shared.runtime.lock()
    }

    /// Whether metrics or a log use the time of a call: reading a clock costs up to a hundredth of an obtain and a
    /// release.
    fn is_timed(&self) -> bool {
        self.settings.has_metrics || event_enabled!(Level::DEBUG)
    }

    fn count_attempt(&self, key: &LeaseKey, attempt: &Result<Attempt, StoreError>, start: Moment) {
        match attempt {
            Ok(Attempt::Obtained(lease)) => {
                self.count(lease, self.is_timed().then(|| lease.waited_since(start)));
            }
            Ok(Attempt::Held(_)) => self.settings.metrics.refused(key),
            Err(_) => self.settings.metrics.failed(key),
        }
    }

    /// Reports a lease. `waited` is the time of the call, if [`is_timed`](Self::is_timed).
    fn count(&self, lease: &Lease, waited: Option<Duration>) {
        Span::current()
            .record("key", tracing::field::display(lease.key()))
            .record("token", lease.token().get());
        let Some(waited) = waited else { return };
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
