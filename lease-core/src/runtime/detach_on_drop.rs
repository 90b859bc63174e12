//! Runs a future on the caller's task, and hands it to a spawned task if the caller drops it.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::CatchUnwind;

/// Runs a future on the task that polls it, which saves two switches between tasks. If the caller drops the
/// future early, `detach` gets the rest of the future, and must run it to its end.
///
/// A future that the caller neither polls nor drops makes no progress.
pub(crate) struct DetachOnDrop<F: Future + Unpin, D: FnOnce(Work<F>)> {
    work: Option<Work<F>>,
    detach: Option<D>,
}

/// A future that has panicked is not polled again.
pub(crate) type Work<F> = CatchUnwind<AssertUnwindSafe<F>>;

impl<F: Future + Unpin, D: FnOnce(Work<F>)> DetachOnDrop<F, D> {
    pub(crate) fn new(work: F, detach: D) -> Self {
        let work = AssertUnwindSafe(work).catch_unwind();
        Self { work: Some(work), detach: Some(detach) }
    }
}

impl<F: Future + Unpin, D: FnOnce(Work<F>) + Unpin> Future for DetachOnDrop<F, D> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let output = ready!(Pin::new(work).poll(context));
        self.work = None;
        Poll::Ready(output)
    }
}

impl<F: Future + Unpin, D: FnOnce(Work<F>)> Drop for DetachOnDrop<F, D> {
    fn drop(&mut self) {
        if let (Some(work), Some(detach)) = (self.work.take(), self.detach.take()) {
            detach(work);
        }
    }
}
