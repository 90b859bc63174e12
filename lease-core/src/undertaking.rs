//! What is done on its caller's task, and goes on where the caller gives up.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::CatchUnwind;

use crate::error::StoreError;
use crate::home::Home;
use crate::outstanding::Errand;

/// Runs on the task of whoever polls it, which saves two ways between tasks; what is left of it when
/// it is dropped, is done by a task of its own.
///
/// Not for what must go on while its caller keeps it and polls something else: that stands still.
///
/// Completes once, and is pending from then on.
pub(crate) struct Undertaking<'a, F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    home: &'a Home,
    // Boxed, so that it can be moved to a task. A panic is an end: what panicked is not polled again.
    work: Option<Pin<Box<CatchUnwind<AssertUnwindSafe<F>>>>>,
    /// Given up last, when the task has an errand of its own: `close` overlooks neither.
    _under_way: Errand,
}

impl<'a, F> Undertaking<'a, F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    pub(crate) fn new(home: &'a Home, work: F, under_way: Errand) -> Self {
        let work = Box::pin(AssertUnwindSafe(work).catch_unwind());
        Self { home, work: Some(work), _under_way: under_way }
    }
}

impl<F, T> Future for Undertaking<'_, F>
where
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
    T: Send,
{
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let answer = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(answer.unwrap_or_else(|_panic| Err(self.home.why_unanswered())))
    }
}

impl<F> Drop for Undertaking<'_, F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    /// Only signals: a task goes on.
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let errand = self.home.errand();
            self.home.run(async move {
                // What nobody waits for any more is dropped, and a lease that is dropped is released.
                drop(work.await);
                drop(errand);
            });
        }
    }
}
