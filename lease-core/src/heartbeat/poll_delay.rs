//! Measures how late the runtime polls the heartbeater. If polls are late, timers are not reliable.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::clock::Clock;

/// Measures how long this task, once ready, waits until the runtime polls it.
///
/// A busy tokio worker polls its timers once in 61 ticks, and one tick is up to four polls of tasks.
/// So a timer may be late by 244 polls of other tasks. A ready task is polled earlier, after one poll of
/// each other ready task. If these polls are long, the heartbeater stays ready and uses no timer. If other
/// tasks become busy while the heartbeater sleeps, its next wake-up is still late.
pub(crate) struct PollDelay {
    /// If a ready task waits for longer than this, the polls of other tasks are long.
    limit: Duration,
    is_late: bool,
}

impl PollDelay {
    /// Makes a measurement for heartbeats that are `period` apart.
    ///
    /// A wait below the limit lasts for at least one poll of another task. So timers are then at most
    /// 244/1024 of a period late. Above the limit, this task is polled at most 1,024 times per period.
    pub(crate) fn new(period: Duration) -> Self {
        Self { limit: period / 1024, is_late: false }
    }

    /// Whether the last poll came late: other tasks keep the worker busy.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Queues this task behind all ready tasks. Completes when the runtime polls it again.
    ///
    /// `yield_now` would wait until the runtime has nothing to do or polls its timers.
    ///
    /// # Cancel safety
    ///
    /// A dropped call measures nothing.
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
