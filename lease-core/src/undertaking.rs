//! What is begun for a caller, and brought to its end also where the caller goes away.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

/// Runs on the task of whoever polls it, which saves two ways between threads; and goes on as a
/// task of its own, once it is dropped before its end.
///
/// On any other runtime than its own it is such a task from the beginning: its timers are its
/// runtime's.
pub(crate) struct Undertaking {
    runtime: Handle,
    work: Option<BoxFuture<'static, ()>>,
}

impl Undertaking {
    pub(crate) fn begin(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> Self {
        // What panics is over, without an answer, as a task would be.
        let work = AssertUnwindSafe(work).catch_unwind().map(|_panic| ()).boxed();
        let undertaking = Self { runtime: runtime.clone(), work: Some(work) };
        let is_at_home = Handle::try_current().is_ok_and(|here| here.id() == runtime.id());
        if is_at_home { undertaking } else { undertaking.detached() }
    }

    fn detached(mut self) -> Self {
        self.detach();
        self
    }

    fn detach(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}

impl Future for Undertaking {
    type Output = ();

    /// Completes with the work; at once, where that is done elsewhere.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(work) = &mut self.work {
            ready!(work.as_mut().poll(context));
            self.work = None;
        }
        Poll::Ready(())
    }
}

impl Drop for Undertaking {
    /// Only signals: what is left is done by a task.
    fn drop(&mut self) {
        self.detach();
    }
}
