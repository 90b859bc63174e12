//! The shared connection of a node. The first request opens it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lease_core::StoreErrorKind;
use lease_core::store::{Clock, Moment};
use redis::{RedisError, Value};
use tracing::{debug, warn};

use super::Node;
use crate::connection::connector::SharedConnection;
use crate::connection::diagnose::diagnose;
use crate::connection::server_run::Run;
use crate::error::{ServerFault, breaks_connection};

#[derive(Default)]
pub(super) struct ConnectionState {
    connecting: Option<Connecting>,
    opened: u64,
    /// The send time of the first request after the last answer.
    silent_since: Option<Moment>,
    /// The time since which an answer has been due. A new connection does not count as an answer.
    pub(super) due_since: Option<Moment>,
    outstanding: usize,
    pub(super) response_time: Duration,
}

impl ConnectionState {
    pub(super) fn patience(&self) -> Duration {
        self.response_time.saturating_mul(2).max(MIN_PATIENCE)
    }

    pub(super) fn run_has_lasted(&self, min_run: Duration) -> bool {
        let connected = self.connecting.as_ref().and_then(Shared::peek);
        let run = connected.and_then(|connected| connected.as_ref().ok()?.run.as_ref());
        run.is_some_and(|run| run.lasted() >= min_run)
    }
}

/// An attempt to connect. All waiting callers poll it, so the attempt continues if one caller stops waiting.
type Connecting = Shared<BoxFuture<'static, Result<Connected, ServerFault>>>;

#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: SharedConnection,
    pub(super) run: Option<Arc<Run>>,
}

impl Node {
    /// Returns the connection and its number. If Sentinels have replaced the master, first closes the
    /// connection to the former master.
    pub(super) async fn connection(&self) -> Result<(Connected, u64), ServerFault> {
        loop {
            let (connected, number) = self.any_connection().await?;
            if !connected.connection.is_replaced() {
                return Ok((connected, number));
            }
            warn!(server = %self.name, "master replaced: connection closed");
            self.close(number);
        }
    }

    async fn any_connection(&self) -> Result<(Connected, u64), ServerFault> {
        let (connecting, number) = {
            let mut state = self.state();
            if state.connecting.is_none() {
                state.opened += 1;
                state.silent_since = Some(self.clock.now());
            }
            let connecting = state.connecting.get_or_insert_with(|| self.open()).clone();
            (connecting, state.opened)
        };
        match connecting.await {
            Ok(connected) => Ok((connected, number)),
            Err(fault) => {
                self.close(number);
                Err(fault)
            }
        }
    }

    fn open(&self) -> Connecting {
        let (name, connector) = (Arc::clone(&self.name), Arc::clone(&self.connector));
        let (check, patience) = (Arc::clone(&self.check), self.max_silence().saturating_mul(2));
        let (time, clock) = (Arc::clone(&self.time), self.clock);
        let sets_and_gets = Arc::clone(&self.sets_and_gets);
        let open = async move {
            let connection = connector.open(&name, patience).await?;
            let sent = clock.now();
            let info = diagnose(&name, &connection, connector.role(), check.eviction).await?;
            if let Some(micros) = info.time {
                time.record(sent, micros);
            }
            sets_and_gets.store(info.sets_and_gets, Ordering::Relaxed);
            let run = match &check.admission {
                Some(admission) => admission.join(&connection, &info).await?,
                None => None,
            };
            debug!(server = %name, run = info.run, "connected");
            Ok(Connected { connection, run })
        };
        open.boxed().shared()
    }

    pub(super) fn close_if_broken(
        &self,
        answer: Result<Value, RedisError>,
        number: u64,
    ) -> Result<Value, RedisError> {
        if answer.as_ref().is_err_and(breaks_connection) {
            self.close(number);
        }
        answer
    }

    pub(super) fn close(&self, number: u64) {
        let mut state = self.state();
        if state.opened == number {
            state.connecting = None;
        }
    }

    /// The connection to a hung server stays open at first. When the server continues, it answers the
    /// requests in order, each claim before its release. The connection to a vanished host would never end.
    pub(super) fn close_if_silent(&self) {
        let mut state = self.state();
        let silence = state.silent_since.map_or(Duration::ZERO, |at| self.clock.now().since(at));
        if state.connecting.is_some() && silence >= self.max_silence() {
            warn!(server = %self.name, ?silence, "server silent: connection closed");
            state.connecting = None;
        }
    }

    fn max_silence(&self) -> Duration {
        self.timeout.saturating_mul(4).max(MIN_SILENCE)
    }
}

pub(super) struct PendingRequest<'a> {
    node: &'a Node,
    sent: Moment,
}

impl<'a> PendingRequest<'a> {
    pub(super) fn new(node: &'a Node) -> Self {
        let sent = node.clock.now();
        let mut state = node.state();
        state.outstanding += 1;
        state.silent_since.get_or_insert(sent);
        state.due_since.get_or_insert(sent);
        Self { node, sent }
    }

    pub(super) fn answered<T>(self, answer: &Result<T, ServerFault>) {
        let now = self.node.clock.now();
        let mut state = self.node.state();
        state.silent_since = None;
        // An unavailable server has not answered.
        if !answer.as_ref().is_err_and(|fault| fault.kind == StoreErrorKind::Unavailable) {
            state.response_time = (state.response_time * 7 + now.since(self.sent)) / 8;
            state.due_since = (state.outstanding > 1).then_some(now);
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.node.state().outstanding -= 1;
    }
}

const MIN_SILENCE: Duration = Duration::from_secs(2);

/// The minimum of [`Node::patience`], even for a node that usually answers faster.
const MIN_PATIENCE: Duration = Duration::from_millis(20);
