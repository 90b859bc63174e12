//! Measures how late the runtime polls the heartbeater. If polls are late, timers are not reliable.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::clock::Clock;

/// Measures how long this task, once ready, waits until the runtime polls it.
///
/// A busy tokio worker polls its timers once in 61 ticks, and one tick is up to four polls of
/// tasks. So a timer may be late by 244 polls. A ready task waits for only one poll of each other
/// ready task. If these polls are long, the heartbeater stays ready and uses no timer.
pub(crate) struct PollDelay {
    limit: Duration,
    is_late: bool,
}

impl PollDelay {
    /// A wait contains at least one poll of another task. So while waits are below the limit, timers are at
    /// most 244/1024 of a period late. Above the limit, this task is polled at most 1,024 times per period.
    pub(crate) fn new(period: Duration) -> Self {
        Self { limit: period / 1024, is_late: false }
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Queues this task behind all ready tasks. Completes when the runtime polls it again.
    /// `yield_now` would wait until the runtime has nothing to do or polls its timers.
    pub(crate) async fn yield_and_measure(&mut self, clock: &dyn Clock) {
        let ready_at = clock.now();
        let mut is_queued = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_queued, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.is_late = clock.now().since(ready_at) > self.limit;
    }
}
