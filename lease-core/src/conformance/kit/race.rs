//! Two requests at the same time, so that a check and a write that are not one step come apart.

use std::future::Future;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// How two requests are sent at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Race {
    /// On one task, where they alternate at each await.
    Alternating,
    /// On two threads: a request that never awaits would run alone on one task.
    OnThreads,
}

/// Runs `one` and `other` at once.
pub(super) async fn at_once<A, B>(
    race: Race,
    one: impl Future<Output = A> + Send + 'static,
    other: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    if let Race::Alternating = race {
        return tokio::join!(one, other);
    }
    let arrived = Arc::new(AtomicUsize::new(0));
    let (one, other) = (on_thread(one, &arrived), on_thread(other, &arrived));
    // The runtime drives timers and sockets of both while this task waits for them.
    (one.await, other.await)
}

/// Runs `request` on a thread of its own, once a second thread has arrived.
fn on_thread<T: Send + 'static>(
    request: impl Future<Output = T> + Send + 'static,
    arrived: &Arc<AtomicUsize>,
) -> impl Future<Output = T> {
    let (runtime, arrived) = (Handle::current(), Arc::clone(arrived));
    let thread = spawn_blocking(move || {
        arrived.fetch_add(1, Ordering::SeqCst);
        // Not a `Barrier`: the second to be woken would start some 50 µs after the first.
        while arrived.load(Ordering::SeqCst) < 2 {
            spin_loop();
            yield_now();
        }
        runtime.block_on(request)
    });
    async move {
        match thread.await {
            Ok(answer) => answer,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}
