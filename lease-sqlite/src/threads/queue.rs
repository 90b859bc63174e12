//! The queue of requests for one thread.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::database::Database;
use crate::error::Fault;

/// Requests that wait for a thread.
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

/// Which requests come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Heartbeats and releases: claims must not delay them.
    Urgent,
    Normal,
}

/// What a thread does next.
pub(crate) enum Taken {
    Requests(Vec<Box<dyn Request>>),
    /// A caller poked the thread, or the thread has waited for the whole limit.
    Nothing,
    Closed,
}

/// A request and its caller.
pub(crate) trait Request: Send {
    /// Runs the request, unless its caller no longer waits.
    fn run(&mut self, database: &Database);

    /// Returns the error of the last [`run`](Self::run), if it failed.
    fn fault(&self) -> Option<&Fault>;

    /// Answers the caller. `Err` replaces the answer, since the transaction of the request failed.
    fn answer(self: Box<Self>, transaction: Result<(), &Fault>);
}

impl Queue {
    /// Runs `request` on the thread, and returns its answer.
    ///
    /// # Cancel safety
    ///
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

    /// Returns the next requests, the urgent ones first. Waits for at most `limit`, or without a limit.
    ///
    /// Takes up to [`MOST`] requests of each kind: urgent requests delay normal ones, but never starve them.
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

    /// Pokes the thread: wakes it, so that it looks for changes now.
    pub(crate) fn poke(&self) {
        self.state.lock().is_poked = true;
        self.changed.notify_one();
    }

    /// Ends the thread, and fails all requests that have not started.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let dropped = (std::mem::take(&mut state.urgent), std::mem::take(&mut state.normal));
        drop(state);
        self.changed.notify_one();
        drop(dropped);
    }
}

/// Closes the queue when its thread ends, also by a panic. Callers then do not wait for ever.
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
            // An error means that the caller no longer waits.
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

/// The most requests of one kind in one transaction.
const MOST: usize = 256;
