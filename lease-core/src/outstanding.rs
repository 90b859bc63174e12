//! Counts what is still on its way to the store, so that `close` can wait for it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default, Clone)]
pub(crate) struct Outstanding(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    errands: AtomicUsize,
    none_left: Notify,
}

/// Something on its way; done when dropped, on whichever path.
#[derive(Debug)]
pub(crate) struct Errand(Arc<Count>);

impl Outstanding {
    pub(crate) fn errand(&self) -> Errand {
        self.0.errands.fetch_add(1, Ordering::SeqCst);
        Errand(Arc::clone(&self.0))
    }

    /// Completes once nothing is on its way.
    pub(crate) async fn none(&self) {
        loop {
            let mut none_left = pin!(self.0.none_left.notified());
            // Listening before looking, so that the last errand is not missed.
            none_left.as_mut().enable();
            if self.0.errands.load(Ordering::SeqCst) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if self.0.errands.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}
