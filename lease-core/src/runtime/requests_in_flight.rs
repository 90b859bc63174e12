//! What is still on its way to the store, so that `close` can wait for it.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::thread::ThreadGuard;

#[derive(Debug, Default, Clone)]
pub(crate) struct Outstanding(Arc<Errands>);

#[derive(Debug, Default)]
struct Errands {
    numbers: Mutex<Numbers>,
    one_is_done: Notify,
}

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    on_their_way: BTreeSet<u64>,
}

/// Something on its way; done when dropped, on whichever path.
#[derive(Debug)]
pub(crate) struct Errand {
    errands: Arc<Errands>,
    number: u64,
    /// What is on its way runs on this thread.
    _thread: Option<ThreadGuard>,
}

impl Outstanding {
    /// Something on its way, which keeps `thread` running.
    pub(crate) fn errand(&self, thread: Option<ThreadGuard>) -> Errand {
        let mut numbers = self.0.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.on_their_way.insert(number);
        Errand { errands: Arc::clone(&self.0), number, _thread: thread }
    }

    /// Completes once everything that is on its way now has arrived, whatever sets out
    /// meanwhile.
    pub(crate) async fn done(&self) {
        let until = self.0.numbers().next;
        loop {
            let mut one_is_done = pin!(self.0.one_is_done.notified());
            // Listening before looking, so that the last errand is not missed.
            one_is_done.as_mut().enable();
            if self.0.numbers().on_their_way.first().is_none_or(|first| *first >= until) {
                return;
            }
            one_is_done.await;
        }
    }
}

impl Errands {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.errands.numbers().on_their_way.remove(&self.number);
        self.errands.one_is_done.notify_waiters();
    }
}
