//! Counts requests in flight, so that `Locker::close` can wait for them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::runtime::own_thread::ThreadGuard;

#[derive(Debug, Default, Clone)]
pub(crate) struct RequestsInFlight(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    numbers: Mutex<Numbers>,
    one_has_ended: Notify,
}

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    in_flight: BTreeSet<u64>,
}

/// Counts one request until the guard is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    shared: Arc<Shared>,
    number: u64,
    /// The thread that the request runs on.
    _thread: Option<ThreadGuard>,
}

impl RequestsInFlight {
    /// Counts a request until the guard is dropped. The guard keeps `thread` running.
    pub(crate) fn guard(&self, thread: Option<ThreadGuard>) -> RequestGuard {
        let mut numbers = self.0.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.in_flight.insert(number);
        RequestGuard { shared: Arc::clone(&self.0), number, _thread: thread }
    }

    /// Completes once every request that is in flight now has ended. Does not wait for requests that
    /// start meanwhile.
    pub(crate) async fn ended(&self) {
        let until = self.0.numbers().next;
        loop {
            let mut one_has_ended = pin!(self.0.one_has_ended.notified());
            // Registered before the check, so that the end of the last request is not missed.
            one_has_ended.as_mut().enable();
            if self.0.numbers().in_flight.first().is_none_or(|first| *first >= until) {
                return;
            }
            one_has_ended.await;
        }
    }
}

impl Shared {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.shared.numbers().in_flight.remove(&self.number);
        self.shared.one_has_ended.notify_waiters();
    }
}
