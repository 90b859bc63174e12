//! Counts answers. Several tasks deliver the answers, and one task waits for the result.

use std::fmt;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Usually wakes the task that waits once per request. A stream of futures would wake the task after each
/// answer.
pub(crate) struct AnswerCount<T> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    count: T,
    waiting: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    Yes,
    No,
}

impl<T> AnswerCount<T> {
    pub(crate) fn new(count: T) -> Self {
        Self { inner: Mutex::new(Inner { count, waiting: None }) }
    }

    pub(crate) fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.inner.lock().count)
    }

    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> (R, Wake)) -> R {
        let mut inner = self.inner.lock();
        let (result, wake) = change(&mut inner.count);
        let waiting = if wake == Wake::Yes { inner.waiting.take() } else { None };
        drop(inner);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        result
    }

    /// Calls `ready` at once and after each wake-up.
    pub(crate) async fn wait<R>(&self, mut ready: impl FnMut(&mut T) -> Option<R>) -> R {
        poll_fn(|context| {
            let mut inner = self.inner.lock();
            if let Some(result) = ready(&mut inner.count) {
                return Poll::Ready(result);
            }
            inner.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> fmt::Debug for AnswerCount<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerCount")
    }
}
