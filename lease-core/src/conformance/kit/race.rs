//! Runs two requests at the same time, to find stores whose check and write are not one atomic step.

use std::future::Future;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Race {
    Alternating,
    /// On two threads: a first request that never awaits could end before the second begins on one task.
    OnThreads,
}

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
    (one.await, other.await)
}

fn on_thread<T: Send + 'static>(
    request: impl Future<Output = T> + Send + 'static,
    arrived: &Arc<AtomicUsize>,
) -> impl Future<Output = T> {
    let (runtime, arrived) = (Handle::current(), Arc::clone(arrived));
    let thread = spawn_blocking(move || {
        arrived.fetch_add(1, Ordering::SeqCst);
        // Spins, because a `Barrier` would wake the second thread some 50 µs after the first.
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
