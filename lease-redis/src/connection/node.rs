//! One server: a connection that all callers share, a time limit for each request, and its watches.

mod connection;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use lease_core::LeaseKey;
use lease_core::store::{BootClock, Clock, Moment, Nonce};
use parking_lot::{Mutex, MutexGuard};
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::connection::{Connected, ConnectionState, PendingRequest};
use crate::connection::connector::{Connector, Role, SharedConnection};
use crate::connection::diagnose::{Eviction, ServerInfo};
use crate::connection::request::{Asking, Request};
use crate::connection::server_run::Run;
use crate::connection::server_time::ServerTime;
use crate::connection::watches::grants::Grants;
use crate::connection::watches::watched::WatchedChannels;
use crate::connection::watches::{Watch, Watches};
use crate::error::{ServerFault, is_no_script};
use crate::scripts::Call;
use crate::scripts::key_space::KeySpace;

/// One logical server. A Cluster counts as one, because its router sends requests to the nodes.
pub(crate) struct Node {
    /// The server's address for messages, without credentials.
    pub(crate) name: Arc<str>,
    pub(crate) keys: KeySpace,
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) watches: Watches,
    connector: Arc<Connector>,
    router: Option<Arc<dyn Router>>,
    check: Arc<Check>,
    state: Mutex<ConnectionState>,
    /// Each unanswered request holds a permit.
    unanswered: Semaphore,
    time: Arc<ServerTime>,
    sets_and_gets: Arc<AtomicBool>,
    watched: Arc<WatchedChannels>,
    clock: BootClock,
}

#[async_trait]
pub(crate) trait Router: Send + Sync {
    async fn connect(self: Arc<Self>, limit: Duration) -> Result<(), ServerFault>;

    /// If the key moves, sends the request again to another node.
    async fn send(
        self: Arc<Self>,
        request: Request<'_>,
        permit: Permit,
    ) -> Result<Value, ServerFault>;

    async fn watch(self: Arc<Self>, channel: String) -> Result<Watch, ServerFault>;

    async fn masters(self: Arc<Self>) -> Result<Vec<Arc<Node>>, ServerFault>;
}

pub(crate) struct Check {
    pub(crate) eviction: Eviction,
    pub(crate) admission: Option<Box<dyn Admission>>,
}

#[async_trait]
pub(crate) trait Admission: Send + Sync {
    /// Returns the server's current run if requests depend on the run's age.
    async fn join(
        &self,
        connection: &SharedConnection,
        info: &ServerInfo,
    ) -> Result<Option<Arc<Run>>, ServerFault>;

    async fn admit(
        &self,
        connection: &SharedConnection,
        run: &Run,
        min_run: Duration,
    ) -> Result<(), ServerFault>;

    fn rejoin_delay(&self) -> Duration;
}

impl Node {
    pub(crate) fn new(
        name: Arc<str>,
        connector: Connector,
        keys: KeySpace,
        limits: Limits,
        check: Check,
    ) -> Self {
        let connector = Arc::new(connector);
        let client = Nonce::random().get().simple().to_string();
        let grants = Arc::new(Grants::new(keys.grants(&client)));
        let watches =
            Watches::new(Arc::clone(&name), Arc::clone(&connector), limits.timeout, grants);
        Self {
            name,
            keys,
            timeout: limits.timeout,
            retention: limits.retention,
            watches,
            connector,
            router: None,
            check: Arc::new(check),
            state: Mutex::default(),
            unanswered: Semaphore::new(MAX_UNANSWERED),
            time: Arc::default(),
            sets_and_gets: Arc::new(AtomicBool::new(true)),
            watched: Arc::default(),
            clock: BootClock::new(),
        }
    }

    pub(crate) fn sets_and_gets(&self) -> bool {
        self.sets_and_gets.load(Ordering::Relaxed)
    }

    pub(crate) fn is_watched(&self, channel: &str) -> bool {
        self.watched.contains(channel)
    }

    pub(crate) fn is_awaited(&self, key: &LeaseKey) -> bool {
        !self.watched.is_empty() && self.is_watched(&self.keys.channel(key))
    }

    pub(crate) fn note_mark(&self, channel: &str) {
        self.watched.note_mark(channel);
    }

    /// Sends watches through `router`, and also requests if the connector has no pool.
    pub(crate) fn with_router(mut self, router: Arc<dyn Router>) -> Self {
        self.router = Some(router);
        self
    }

    pub(crate) fn role(&self) -> Role {
        self.connector.role()
    }

    /// Refuses a ttl that is longer than the retention, the time for which the server keeps the key's token.
    pub(crate) fn check(&self, ttl: Duration) -> Result<(), ServerFault> {
        if ttl <= self.retention {
            return Ok(());
        }
        Err(ServerFault::misconfigured(format!(
            "the ttl {ttl:?} is longer than the retention {:?}: set a longer one by `with_retention`",
            self.retention
        )))
    }

    /// Returns microseconds since 1970.
    pub(crate) fn time(&self) -> Option<u64> {
        self.time.at(self.clock.now())
    }

    /// Records that the server reported `micros` to a request that was sent at `sent`.
    pub(crate) fn record_time(&self, sent: Moment, micros: u64) {
        self.time.record(sent, micros);
    }

    pub(crate) fn time_is_old(&self) -> bool {
        self.time.is_old(self.clock.now())
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Returns the time at which an answer has been due for twice the usual response time, and at least for
    /// 20 ms. Returns `None` while no answer is due.
    pub(crate) fn silent_at(&self) -> Option<Moment> {
        let state = self.state();
        Some(state.due_since? + state.patience())
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent_at().is_some_and(|at| at <= self.now())
    }

    pub(crate) fn response_time(&self) -> Duration {
        self.state().response_time
    }

    pub(crate) fn patience(&self) -> Duration {
        self.state().patience()
    }

    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.unanswered.acquire().await.ok()
    }

    pub(crate) async fn connect(&self) -> Result<(), ServerFault> {
        let limit = self.timeout.max(MIN_CONNECT_LIMIT);
        if let Some(router) = self.request_router() {
            return router.connect(limit).await;
        }
        self.within_limit(limit, async { self.connection().await.map(drop) }).await
    }

    pub(crate) async fn call(&self, call: &Call) -> Result<Value, ServerFault> {
        self.send(Request::Script(call), Permit::Required).await
    }

    /// Runs a script without a permit. Unpolled claims may hold all permits, and must not delay heartbeats
    /// and releases.
    pub(crate) async fn call_at_once(&self, call: &Call) -> Result<Value, ServerFault> {
        self.send(Request::Script(call), Permit::NotRequired).await
    }

    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, ServerFault> {
        self.send(Request::Command(command), Permit::Required).await
    }

    pub(crate) async fn send(
        &self,
        request: Request<'_>,
        permit: Permit,
    ) -> Result<Value, ServerFault> {
        if let Some(router) = self.request_router() {
            return router.send(request, permit).await;
        }
        let answer = self.attempt(request, Asking::No, permit, self.timeout).await?;
        answer.map_err(|error| ServerFault::from_redis(&self.name, &error))
    }

    fn request_router(&self) -> Option<Arc<dyn Router>> {
        match &*self.connector {
            Connector::Cluster => self.router.clone(),
            _ => None,
        }
    }

    /// The outer error is the connection's error. The inner error is the server's answer, and may name
    /// another node.
    pub(crate) async fn attempt(
        &self,
        request: Request<'_>,
        asking: Asking,
        permit: Permit,
        limit: Duration,
    ) -> Result<Result<Value, RedisError>, ServerFault> {
        // The semaphore is never closed. The limit excludes the wait for a permit, because requests to a hung
        // server return their permits after the limit.
        let _permit = match permit {
            Permit::Required => Some(self.unanswered.acquire().await),
            Permit::NotRequired => None,
        };
        // The box saves the callers several moves of the future's state.
        self.in_time(limit, Box::pin(self.exchange(request, asking))).await
    }

    async fn exchange(
        &self,
        request: Request<'_>,
        asking: Asking,
    ) -> Result<Result<Value, RedisError>, ServerFault> {
        let (Connected { connection, run }, number) = self.connection().await?;
        self.admit(request, &connection, run.as_deref()).await?;
        let answer = {
            let mut sent = pin!(connection.send(request, asking));
            match poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await {
                // An error at the first poll is not the server's answer. The driver has found the connection
                // closed and has sent nothing.
                Poll::Ready(Err(error)) if error.is_connection_dropped() => None,
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => Some(sent.await),
            }
        };
        let Some(answer) = answer else {
            self.close(number);
            let (Connected { connection, run }, number) = self.connection().await?;
            self.admit(request, &connection, run.as_deref()).await?;
            let answer = Box::pin(connection.send(request, asking)).await;
            return Ok(self.close_if_broken(answer, number));
        };
        Ok(self.close_if_broken(answer, number))
    }

    /// Returns zero on one logical server.
    pub(crate) fn rejoin_delay(&self) -> Duration {
        let admission = self.check.admission.as_ref();
        admission.map_or(Duration::ZERO, |admission| admission.rejoin_delay())
    }

    pub(crate) fn has_run_for(&self, min_run: Duration) -> bool {
        min_run.is_zero() || self.state().run_has_lasted(min_run)
    }

    async fn admit(
        &self,
        request: Request<'_>,
        connection: &SharedConnection,
        run: Option<&Run>,
    ) -> Result<(), ServerFault> {
        let min_run = request.min_run();
        match (&self.check.admission, run) {
            (Some(admission), Some(run)) if !min_run.is_zero() => {
                admission.admit(connection, run, min_run).await
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn watch(&self, channel: String) -> Result<Watch, ServerFault> {
        let watched = self.watched.enter(channel.clone());
        let watch = match &self.router {
            Some(router) => Arc::clone(router).watch(channel).await?,
            None => self.watches.watch(channel).await?,
        };
        Ok(watch.with_entry(watched))
    }

    pub(crate) fn grants(&self) -> &Arc<Grants> {
        self.watches.grants()
    }

    pub(crate) async fn subscribe_to_grants(&self) -> Result<(), ServerFault> {
        self.watches.subscribe_to_grants().await
    }

    pub(crate) async fn masters(&self) -> Result<Option<Vec<Arc<Self>>>, ServerFault> {
        match &self.router {
            Some(router) => Arc::clone(router).masters().await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the number of replicas that have applied the script.
    pub(crate) async fn call_and_wait(
        &self,
        call: &Call,
        replicas: usize,
    ) -> Result<(Value, usize), ServerFault> {
        let (name, connector) = (Arc::clone(&self.name), Arc::clone(&self.connector));
        // The driver's limit is above the store's limit, whose error explains more. The driver's limit is
        // short, because another caller may need the connection.
        let (call, driver_limit) = (call.clone(), self.timeout.saturating_mul(2));
        let wait_limit = self.timeout.as_millis() / 2;
        let run = async move {
            let mut connection = connector.dedicated(&name, driver_limit).await?;
            let run = async {
                let mut answer = connection.query(call.by_hash()).await;
                if answer.as_ref().is_err_and(is_no_script) {
                    answer = connection.query(&call.by_text()).await;
                }
                let mut wait = redis::cmd("WAIT");
                wait.arg(replicas).arg(u64::try_from(wait_limit).unwrap_or(u64::MAX).max(1));
                let copies = connection.query(&wait).await?;
                Ok((answer?, redis::from_redis_value(copies)?))
            };
            run.await.map_err(|error: RedisError| ServerFault::from_redis(&name, &error))
        };
        let run = run.boxed();
        self.within_limit(self.timeout, async {
            drop(self.connection().await?);
            // Spawned, so that the pool gets the connection back even if the caller stops polling.
            let ran = tokio::spawn(run).await;
            ran.unwrap_or_else(|_dropped| Err(ServerFault::unavailable("the runtime has ended")))
        })
        .await
    }

    async fn within_limit<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, ServerFault>>,
    ) -> Result<T, ServerFault> {
        let _permit = self.unanswered.acquire().await;
        self.in_time(limit, call).await
    }

    async fn in_time<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, ServerFault>>,
    ) -> Result<T, ServerFault> {
        let pending = PendingRequest::new(self);
        match timeout(limit, call).await {
            Ok(answer) => {
                pending.answered(&answer);
                answer
            }
            Err(_elapsed) => {
                self.close_if_silent();
                Err(ServerFault::late(&self.name, limit))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.name).finish()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Permit {
    Required,
    NotRequired,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
}

/// Limits the memory of requests while a server hangs. Further requests wait.
const MAX_UNANSWERED: usize = 1024;

/// The first connection takes several round trips, and some attempts may wait for a silent host.
const MIN_CONNECT_LIMIT: Duration = Duration::from_secs(10);
