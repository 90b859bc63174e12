//! The queue of requests for one thread.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::database::Database;
use crate::error::Fault;

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    urgent: VecDeque<Box<dyn Request>>,
    normal: VecDeque<Box<dyn Request>>,
    is_poked: bool,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Heartbeats and releases, which claims must not delay.
    Urgent,
    Normal,
}

pub(crate) enum Taken {
    Requests(Vec<Box<dyn Request>>),
    /// A caller poked the thread, or the thread has waited for the whole limit.
    Nothing,
    Closed,
}

pub(crate) trait Request: Send {
    /// Does nothing if the caller no longer waits.
    fn run(&mut self, database: &Database);

    /// Returns the error of the last [`run`](Self::run).
    fn fault(&self) -> Option<&Fault>;

    /// An error of the transaction replaces the answer.
    fn answer(self: Box<Self>, transaction: Result<(), &Fault>);
}

impl Queue {
    /// A dropped request that has not started is not run. A request that has started is completed.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        urgency: Urgency,
        request: impl FnOnce(&Database) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (reply, answer) = oneshot::channel();
        self.push(Box::new(Call { request: Some(request), result: None, reply }), urgency)?;
        // An error means that the thread has ended, and has dropped the request.
        answer.await.unwrap_or_else(|_ended| Err(ended()))
    }

    fn push(&self, request: Box<dyn Request>, urgency: Urgency) -> Result<(), Fault> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(ended());
        }
        match urgency {
            Urgency::Urgent => state.urgent.push_back(request),
            Urgency::Normal => state.normal.push_back(request),
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for at most `limit`, or without a limit. Takes up to [`MOST`] requests of each kind, urgent
    /// requests first, so that urgent requests never starve normal requests.
    pub(crate) fn take(&self, limit: Option<Duration>) -> Taken {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return Taken::Closed;
            }
            if !state.urgent.is_empty() || !state.normal.is_empty() {
                let urgent = state.urgent.len().min(MOST);
                let mut requests: Vec<_> = state.urgent.drain(..urgent).collect();
                let normal = state.normal.len().min(MOST);
                requests.extend(state.normal.drain(..normal));
                return Taken::Requests(requests);
            }
            if std::mem::take(&mut state.is_poked) {
                return Taken::Nothing;
            }
            match limit {
                None => self.changed.wait(&mut state),
                Some(limit) => {
                    if self.changed.wait_for(&mut state, limit).timed_out() {
                        return Taken::Nothing;
                    }
                }
            }
        }
    }

    /// The thread then looks for changes.
    pub(crate) fn poke(&self) {
        self.state.lock().is_poked = true;
        self.changed.notify_one();
    }

    /// Fails all requests that have not started.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let dropped = (std::mem::take(&mut state.urgent), std::mem::take(&mut state.normal));
        drop(state);
        self.changed.notify_one();
        drop(dropped);
    }
}

/// A panic of the thread also closes the queue, so that callers do not wait for ever.
pub(crate) struct ClosesAtEnd<'a>(pub(crate) &'a Queue);

impl Drop for ClosesAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Call<T, F> {
    request: Option<F>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T: Send, F: FnOnce(&Database) -> Result<T, Fault> + Send> Request for Call<T, F> {
    fn run(&mut self, database: &Database) {
        if self.reply.is_closed() {
            return;
        }
        self.result = self.request.take().map(|request| request(database));
    }

    fn fault(&self) -> Option<&Fault> {
        self.result.as_ref()?.as_ref().err()
    }

    fn answer(self: Box<Self>, transaction: Result<(), &Fault>) {
        let result = match transaction {
            Ok(()) => self.result,
            Err(fault) => Some(Err(fault.clone())),
        };
        if let Some(result) = result {
            drop(self.reply.send(result));
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

fn ended() -> Fault {
    Fault::unavailable("this store was closed, or its thread has ended: open the file again")
}

/// A transaction runs at most this number of requests of one kind.
const MOST: usize = 256;
