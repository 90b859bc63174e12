//! One server: a connection that everybody shares, a limit for each call, and its watches.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lease_core::{BootClock, Clock, Moment, StoreErrorKind};
use redis::{Cmd, RedisError, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::connection::{Connector, Link, Role};
use crate::diagnose::{Eviction, diagnose};
use crate::error::{Fault, breaks_connection, is_no_script};
use crate::key_space::KeySpace;
use crate::request::{Asking, Request};
use crate::script::Call;
use crate::server_time::ServerTime;
use crate::watch::{Watch, Watches};

/// One logical server.
pub(crate) struct Node {
    /// For messages: where it is, without credentials.
    pub(crate) name: Arc<str>,
    pub(crate) keys: KeySpace,
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) watches: Watches,
    connector: Arc<Connector>,
    check: Arc<Check>,
    slot: Mutex<Slot>,
    /// A permit for each call that may be unanswered at once.
    unanswered: Semaphore,
    time: Arc<ServerTime>,
    clock: BootClock,
}

/// What every new connection has to pass.
pub(crate) struct Check {
    pub(crate) eviction: Eviction,
    /// Refuses a server whose run id belongs to another of the nodes already.
    pub(crate) admit: Admit,
}

/// Judges the run id of a server.
pub(crate) type Admit = Box<dyn Fn(&str) -> Result<(), Fault> + Send + Sync>;

/// The connection, or the way to it.
#[derive(Default)]
struct Slot {
    opening: Option<Opening>,
    opened: u64,
    /// When the first request was sent since the last answer came.
    silent_since: Option<Moment>,
    /// Since when the node has owed an answer. A connection that is made again is no answer.
    owes_since: Option<Moment>,
    /// Requests that wait for an answer.
    outstanding: usize,
    /// The moving average of how long answers take.
    usual: Duration,
}

impl Slot {
    fn patience(&self) -> Duration {
        self.usual.saturating_mul(2).max(LEAST_PATIENCE)
    }
}

/// Many wait for it, and whoever waits drives it on; so a caller that gives up takes nothing
/// from the others.
type Opening = Shared<BoxFuture<'static, Result<Link, Fault>>>;

impl Node {
    pub(crate) fn new(
        name: Arc<str>,
        connector: Connector,
        keys: KeySpace,
        limits: Limits,
        check: Check,
    ) -> Self {
        let connector = Arc::new(connector);
        let watches = Watches::new(Arc::clone(&name), Arc::clone(&connector), limits.timeout);
        let clock = BootClock::new();
        Self {
            name,
            keys,
            timeout: limits.timeout,
            retention: limits.retention,
            watches,
            connector,
            check: Arc::new(check),
            slot: Mutex::default(),
            unanswered: Semaphore::new(MOST_UNANSWERED),
            time: Arc::default(),
            clock,
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.connector.role()
    }

    /// Refuses a ttl that outlasts the memory of its token.
    pub(crate) fn check(&self, ttl: Duration) -> Result<(), Fault> {
        if ttl <= self.retention {
            return Ok(());
        }
        Err(Fault::misconfigured(format!(
            "a ttl of {ttl:?} is longer than the retention of {:?}: lengthen that",
            self.retention
        )))
    }

    /// What time it is there, in microseconds since 1970, as far as it has told.
    pub(crate) fn time(&self) -> Option<u64> {
        self.time.at(self.clock.now())
    }

    pub(crate) fn told_time(&self, asked: Moment, micros: u64) {
        self.time.tell(asked, micros);
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// When the node counts as silent: once it has owed an answer for twice as long as answers
    /// usually take. `None` while it owes none.
    pub(crate) fn silent_at(&self) -> Option<Moment> {
        let slot = self.slot();
        Some(slot.owes_since? + slot.patience())
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent_at().is_some_and(|at| at <= self.now())
    }

    /// How long the node may owe an answer before it counts as silent.
    pub(crate) fn patience(&self) -> Duration {
        self.slot().patience()
    }

    /// Connects, and says what is wrong with the server.
    pub(crate) async fn connect(&self) -> Result<(), Fault> {
        let limit = self.timeout.max(LEAST_TO_LOOK);
        if let Connector::Cluster(cluster) = &*self.connector {
            return cluster.connect(limit).await;
        }
        self.connect_alone().await
    }

    /// The same for this server, where it is one of a Cluster's.
    pub(crate) async fn connect_alone(&self) -> Result<(), Fault> {
        let limit = self.timeout.max(LEAST_TO_LOOK);
        self.within_limit(limit, async { self.link().await.map(drop) }).await
    }

    /// Runs a script, by its hash where the server knows it.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, Fault> {
        self.ask(Request::Script(call), Queue::InLine).await
    }

    /// The same, without a place in the queue: whoever asks for a key may stand still, and keeps its
    /// place meanwhile. That must keep back no heartbeat, and no release.
    pub(crate) async fn call_at_once(&self, call: &Call) -> Result<Value, Fault> {
        self.ask(Request::Script(call), Queue::AtOnce).await
    }

    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, Fault> {
        self.ask(Request::Command(command), Queue::InLine).await
    }

    /// Wherever the request's key is.
    pub(crate) async fn ask(&self, request: Request<'_>, queue: Queue) -> Result<Value, Fault> {
        if let Connector::Cluster(cluster) = &*self.connector {
            return cluster.call(request, queue).await;
        }
        let answer = self.attempt(request, Asking::No, queue, self.timeout).await?;
        answer.map_err(|error| Fault::from_redis(&self.name, &error))
    }

    /// Asks this server alone. The outer error is the connection's; the inner one was answered, and
    /// may lead to another server.
    pub(crate) async fn attempt(
        &self,
        request: Request<'_>,
        asking: Asking,
        queue: Queue,
        limit: Duration,
    ) -> Result<Result<Value, RedisError>, Fault> {
        // Never closed. The limit is the server's, not the queue's: calls that hang free their places
        // when it has passed.
        let _permit = match queue {
            Queue::InLine => Some(self.unanswered.acquire().await),
            Queue::AtOnce => None,
        };
        self.in_time(limit, self.exchange(request, asking)).await
    }

    async fn exchange(
        &self,
        request: Request<'_>,
        asking: Asking,
    ) -> Result<Result<Value, RedisError>, Fault> {
        let (link, opened) = self.link().await?;
        let answer = {
            let mut asked = pin!(link.ask(request, asking));
            match poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await {
                // Before the server can have answered: the driver has found the connection closed,
                // and sent nothing.
                Poll::Ready(Err(error)) if error.is_connection_dropped() => None,
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => Some(asked.await),
            }
        };
        let Some(answer) = answer else {
            self.close(opened);
            let (link, opened) = self.link().await?;
            return Ok(self.heard(link.ask(request, asking).await, opened));
        };
        Ok(self.heard(answer, opened))
    }

    /// Watches `channel`, wherever in a Cluster it is.
    pub(crate) async fn watch(&self, channel: String) -> Result<Watch, Fault> {
        match &*self.connector {
            Connector::Cluster(cluster) | Connector::ClusterPool { watches: cluster, .. } => {
                cluster.watch(channel).await
            }
            _ => self.watches.watch(channel).await,
        }
    }

    /// Runs a script, and answers how many replicas have it, too.
    pub(crate) async fn call_and_wait(
        &self,
        call: &Call,
        replicas: usize,
    ) -> Result<(Value, usize), Fault> {
        let (name, connector) = (Arc::clone(&self.name), Arc::clone(&self.connector));
        // Above our own limit, which says more than the driver's; not by much, since somebody may wait
        // for what is lent.
        let (call, longest) = (call.clone(), self.timeout.saturating_mul(2));
        let patience = self.timeout.as_millis() / 2;
        let run = async move {
            let mut lent = connector.lend(&name, longest).await?;
            let run = async {
                let mut answer = lent.query(call.by_hash()).await;
                if answer.as_ref().is_err_and(is_no_script) {
                    answer = lent.query(&call.by_text()).await;
                }
                let mut wait = redis::cmd("WAIT");
                wait.arg(replicas).arg(u64::try_from(patience).unwrap_or(u64::MAX).max(1));
                let copies = lent.query(&wait).await?;
                Ok((answer?, redis::from_redis_value(copies)?))
            };
            run.await.map_err(|error: RedisError| Fault::from_redis(&name, &error))
        };
        let run = run.boxed();
        self.within_limit(self.timeout, async {
            // Says what is wrong with the server, as other calls do.
            drop(self.link().await?);
            // A task: whoever asks may stand still, and others need what is lent.
            let ran = tokio::spawn(run).await;
            ran.unwrap_or_else(|_dropped| Err(Fault::unavailable("the runtime has ended")))
        })
        .await
    }

    async fn within_limit<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let _permit = self.unanswered.acquire().await;
        self.in_time(limit, call).await
    }

    async fn in_time<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let pending = Pending::new(self);
        match timeout(limit, call).await {
            Ok(answer) => {
                pending.answered(&answer);
                answer
            }
            Err(_elapsed) => {
                self.give_up_on_silence();
                Err(Fault::late(&self.name, limit))
            }
        }
    }

    async fn link(&self) -> Result<(Link, u64), Fault> {
        loop {
            let (link, opened) = self.any_link().await?;
            if !link.is_replaced() {
                return Ok((link, opened));
            }
            warn!(server = %self.name, "master replaced: connection given up");
            self.close(opened);
        }
    }

    async fn any_link(&self) -> Result<(Link, u64), Fault> {
        let (opening, opened) = {
            let mut slot = self.slot();
            if slot.opening.is_none() {
                slot.opened += 1;
                slot.silent_since = Some(self.clock.now());
            }
            let opening = slot.opening.get_or_insert_with(|| self.open()).clone();
            (opening, slot.opened)
        };
        match opening.await {
            Ok(link) => Ok((link, opened)),
            Err(fault) => {
                self.close(opened);
                Err(fault)
            }
        }
    }

    fn open(&self) -> Opening {
        let (name, connector) = (Arc::clone(&self.name), Arc::clone(&self.connector));
        let (check, patience) = (Arc::clone(&self.check), self.longest_silence().saturating_mul(2));
        let (time, clock) = (Arc::clone(&self.time), self.clock);
        let open = async move {
            let link = connector.open(&name, patience).await?;
            let asked = clock.now();
            let health = diagnose(&name, &link, connector.role(), check.eviction).await?;
            (check.admit)(&health.run)?;
            if let Some(micros) = health.time {
                time.tell(asked, micros);
            }
            debug!(server = %name, run = health.run, "connected");
            Ok(link)
        };
        open.boxed().shared()
    }

    fn heard(&self, answer: Result<Value, RedisError>, opened: u64) -> Result<Value, RedisError> {
        if answer.as_ref().is_err_and(breaks_connection) {
            self.close(opened);
        }
        answer
    }

    /// Forgets the connection that was opened as number `opened`, so that the next call opens
    /// another.
    fn close(&self, opened: u64) {
        let mut slot = self.slot();
        if slot.opened == opened {
            slot.opening = None;
        }
    }

    /// A server that hangs keeps its connection for a while: what was sent over it is answered
    /// in order once it goes on, each claim before its release. A host that is gone without a
    /// word would keep it for ever, so a long silence ends it.
    fn give_up_on_silence(&self) {
        let mut slot = self.slot();
        let silence = slot.silent_since.map_or(Duration::ZERO, |at| self.clock.now().since(at));
        if slot.opening.is_some() && silence >= self.longest_silence() {
            warn!(server = %self.name, ?silence, "connection given up");
            slot.opening = None;
        }
    }

    fn longest_silence(&self) -> Duration {
        self.timeout.saturating_mul(4).max(LEAST_SILENCE)
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for an answer of `node`.
struct Pending<'a> {
    node: &'a Node,
    sent: Moment,
}

impl<'a> Pending<'a> {
    fn new(node: &'a Node) -> Self {
        let sent = node.clock.now();
        let mut slot = node.slot();
        slot.outstanding += 1;
        slot.silent_since.get_or_insert(sent);
        slot.owes_since.get_or_insert(sent);
        Self { node, sent }
    }

    fn answered<T>(self, answer: &Result<T, Fault>) {
        let now = self.node.clock.now();
        let mut slot = self.node.slot();
        slot.silent_since = None;
        // The node may be out of reach: then it has not answered.
        if !answer.as_ref().is_err_and(|fault| fault.kind == StoreErrorKind::Unavailable) {
            slot.usual = (slot.usual * 7 + now.since(self.sent)) / 8;
            slot.owes_since = (slot.outstanding > 1).then_some(now);
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.node.slot().outstanding -= 1;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.name).finish()
    }
}

/// Whether a request takes one of the places for unanswered ones.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Queue {
    InLine,
    AtOnce,
}

/// How long calls may take, and how long counters are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
}

/// A hung server costs no more memory than this many calls; others wait for their turn.
const MOST_UNANSWERED: usize = 1024;

/// The first connection, and a look at the server: several round trips, far away too, of which some
/// may wait for a host that is silent.
const LEAST_TO_LOOK: Duration = Duration::from_secs(10);

const LEAST_SILENCE: Duration = Duration::from_secs(2);

/// A node that owes an answer for less counts as one that answers, however fast it usually is.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_millis(20);
