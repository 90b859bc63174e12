//! The calls that wait until a key is obtained.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, watch};
use tracing::{Instrument, Span, debug_span};

use crate::acquire::contest::{Contest, Position};
use crate::acquire::waiting::contend;
use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::locker_runtime::runtime_has_ended;
use crate::key::LeaseKey;
use crate::lease::Lease;
use crate::locker::wait_in_turn::WaitInTurn;
use crate::locker::{Locker, Shared};
use crate::metrics::open::OpenWait;
use crate::metrics::stopwatch::Stopwatch;
use crate::settings::Settings;

impl Locker {
    /// Waits without a limit until `key` is obtained.
    ///
    /// If the store keeps a [queue](crate::store::InTurn) for the key, the waiters of all processes obtain
    /// it in the order in which their requests arrived. A release hands the key to the next waiter. The
    /// store skips a waiter that has crashed.
    ///
    /// With another store, or with [`Waiting::Racing`](crate::Waiting::Racing), the waiters of one locker
    /// queue in the order of their calls. Only the first waiter sends requests. A release wakes this
    /// waiter, if the store can notify. If not, the waiter retries every
    /// [`poll_interval`](crate::LeaseOptions::poll_interval). In both cases, the waiter also retries within
    /// 20 ms after the holder's lease expires. Waiters of two lockers have no order.
    ///
    /// A task that waits for a key that it holds itself waits for ever.
    ///
    /// # Errors
    ///
    /// If the store returns an error that is not [retryable](StoreError::is_retryable). After any
    /// other error, the waiter pauses and retries.
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`].
    pub async fn wait_until_obtained(&self, key: &LeaseKey) -> Result<Lease, StoreError> {
        let span = self.span("wait_until_obtained", key);
        self.wait(std::slice::from_ref(key), watch::Sender::default()).instrument(span).await
    }

    /// Waits like [`wait_until_obtained`](Self::wait_until_obtained), and reports the position in
    /// the queue.
    ///
    /// # Errors
    ///
    /// The returned future has the errors of [`wait_until_obtained`](Self::wait_until_obtained).
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped waiter leaves the queue, and releases a key that was granted meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use lease_core::Locker;
    /// use lease_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let (first, second) = (Locker::new(store.clone()), Locker::new(store));
    /// let key = "payroll".parse()?;
    /// let lease = first.wait_until_obtained(&key).await?;
    ///
    /// let wait = second.wait_in_turn(&key);
    /// let mut positions = wait.positions();
    /// let waiting = tokio::spawn(wait);
    /// let ahead = *positions.wait_for(Option::is_some).await?;
    /// assert_eq!(ahead, Some(0), "the next one");
    ///
    /// lease.release().await?;
    /// let lease = waiting.await??;
    /// lease.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_in_turn(&self, key: &LeaseKey) -> WaitInTurn {
        let (position, positions) = watch::channel(None);
        let (locker, key) = (self.clone(), key.clone());
        let span = self.span("wait_in_turn", &key);
        let wait = async move { locker.wait(std::slice::from_ref(&key), position).await };
        WaitInTurn { wait: Box::pin(wait.instrument(span)), position: positions }
    }

    /// Waits without a limit until any one of `keys` is obtained.
    ///
    /// The caller queues for each key as in [`wait_until_obtained`](Self::wait_until_obtained), and
    /// obtains one key. A store with queues may grant a second key at the same time. The locker
    /// then releases the second key at once.
    ///
    /// # Errors
    ///
    /// If `keys` is empty, or if the store returns an error that is not
    /// [retryable](StoreError::is_retryable) for any of the keys.
    ///
    /// # Cancel safety
    ///
    /// Safe, as described on [`Locker`].
    pub async fn wait_until_any_obtained(&self, keys: &[LeaseKey]) -> Result<Lease, StoreError> {
        if keys.is_empty() {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "no key was given: the wait would never end",
            ));
        }
        let span = debug_span!(
            "lease",
            call = "wait_until_any_obtained",
            key = tracing::field::Empty,
            lessee = %self.lessee(),
            token = tracing::field::Empty,
        );
        self.wait(keys, watch::Sender::default()).instrument(span).await
    }

    async fn wait(&self, keys: &[LeaseKey], position: Position) -> Result<Lease, StoreError> {
        let start = self.is_timed().then(Stopwatch::start);
        let runtime = self.locker_runtime()?;
        let waiting = start.and_then(|start| self.open_wait(keys, start));
        let shuffled: Vec<_> = self.shuffled(keys).into_iter().cloned().collect();
        let (settings, shared) = (Arc::clone(&self.settings), Arc::clone(&self.shared));
        let contest = {
            let runtime = runtime.clone();
            async move {
                let one_at_a_time = Mutex::new(());
                let Shared { queue, unsettled, contended, .. } = &*shared;
                let contest = Contest {
                    settings: &settings,
                    runtime: &runtime,
                    queue,
                    unsettled,
                    contended,
                    one_at_a_time: &one_at_a_time,
                    position: &position,
                };
                let mut contenders: FuturesUnordered<_> =
                    shuffled.iter().map(|key| contend(contest, key)).collect();
                contenders.next().await.unwrap_or_else(|| Err(runtime_has_ended()))
            }
        };
        let lease = runtime.run_until_dropped(contest.instrument(Span::current())).await;
        let waited = start.map(Stopwatch::elapsed);
        if let (Some(waiting), Some(waited)) = (waiting, waited) {
            waiting.end_after(waited);
        }
        match &lease {
            Ok(lease) => self.count(lease, waited),
            Err(_) => keys.iter().for_each(|key| self.settings.metrics.failed(key)),
        }
        lease
    }

    fn open_wait(&self, keys: &[LeaseKey], start: Stopwatch) -> Option<OpenWait> {
        let Settings { metrics, has_metrics, .. } = &*self.settings;
        has_metrics.then(|| OpenWait::new(Arc::clone(metrics), keys.to_vec(), start))
    }
}
