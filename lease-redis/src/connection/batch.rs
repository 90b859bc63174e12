//! Claims and releases that are made at the same time share one write to a server.
//!
//! While few callers make requests, each caller writes its request at once, because a separate task would
//! take longer. A batch contains only some of the waiting requests, so that the client prepares the next
//! batch while the server executes one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::error::ServerFault;

#[async_trait]
pub(crate) trait BatchWriter: Send + Sync + 'static {
    type Claim: Send;
    type Granted: Send;
    type Release: Send;

    /// Writes a batch, and answers its requests. A request that this call drops without an answer fails as
    /// unavailable.
    async fn write(
        &self,
        claims: Vec<Pending<Self::Claim, Self::Granted>>,
        releases: Vec<Pending<Self::Release, bool>>,
    );
}

pub(crate) struct Pending<R, A> {
    pub(crate) request: R,
    answer: oneshot::Sender<Result<A, ServerFault>>,
}

impl<R, A> Pending<R, A> {
    pub(crate) fn answer(self, answer: Result<A, ServerFault>) {
        drop(self.answer.send(answer));
    }
}

pub(crate) fn fail_all<R, A>(pending: Vec<Pending<R, A>>, fault: &ServerFault) {
    for one in pending {
        one.answer(Err(fault.clone()));
    }
}

pub(crate) struct Batches<W: BatchWriter> {
    writer: W,
    queue: Mutex<Queue<W>>,
}

struct Queue<W: BatchWriter> {
    claims: VecDeque<Pending<W::Claim, W::Granted>>,
    releases: VecDeque<Pending<W::Release, bool>>,
    alone: usize,
    /// The number of tasks that write batches. While requests wait, at least one task writes.
    senders: usize,
    unanswered: usize,
    /// The number of further requests that must share batches, even if few are unanswered.
    together: u8,
}

impl<W: BatchWriter> Default for Queue<W> {
    fn default() -> Self {
        let (claims, releases) = (VecDeque::new(), VecDeque::new());
        Self { claims, releases, alone: 0, senders: 0, unanswered: 0, together: 0 }
    }
}

impl<W: BatchWriter> Batches<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, queue: Mutex::default() }
    }

    /// If the caller drops the future before the claim is written, the claim is never sent. Otherwise, the
    /// caller's next request could be the release of this claim, and the server would execute it first: a
    /// batch has its releases before its claims.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        claim: W::Claim,
    ) -> Result<W::Granted, ServerFault> {
        let (answer, answered) = oneshot::channel();
        let claim = Pending { request: claim, answer };
        if let Some(_alone) = self.alone() {
            self.writer.write(vec![claim], Vec::new()).await;
        } else {
            self.submit(|queue| queue.claims.push_back(claim));
        }
        answered.await.unwrap_or_else(|_dropped| Err(stopped()))
    }

    /// Returns whether the grant held its key. The release may be sent even if the future is dropped.
    pub(crate) async fn release(
        self: &Arc<Self>,
        release: W::Release,
    ) -> Result<bool, ServerFault> {
        let (answer, answered) = oneshot::channel();
        let release = Pending { request: release, answer };
        if let Some(_alone) = self.alone() {
            self.writer.write(Vec::new(), vec![release]).await;
        } else {
            self.submit(|queue| queue.releases.push_back(release));
        }
        answered.await.unwrap_or_else(|_dropped| Err(stopped()))
    }

    fn alone(&self) -> Option<Alone<'_, W>> {
        let mut queue = self.queue.lock();
        if queue.alone == MOST_ALONE || queue.senders > 0 {
            queue.together = TOGETHER;
            return None;
        }
        if queue.together > 0 {
            queue.together -= 1;
            return None;
        }
        queue.alone += 1;
        Some(Alone { batches: self })
    }

    fn submit(self: &Arc<Self>, push: impl FnOnce(&mut Queue<W>)) {
        let mut queue = self.queue.lock();
        push(&mut queue);
        if queue.senders == MOST_SENDERS {
            return;
        }
        queue.senders += 1;
        drop(queue);
        // Runs on a spawned task, so that a dropped caller does not stop the requests of others.
        tokio::spawn(Sender { batches: Arc::clone(self), counted: true, written: 0 }.run());
    }
}

impl<W: BatchWriter> fmt::Debug for Batches<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batches")
    }
}

struct Alone<'a, W: BatchWriter> {
    batches: &'a Batches<W>,
}

impl<W: BatchWriter> Drop for Alone<'_, W> {
    fn drop(&mut self) {
        self.batches.queue.lock().alone -= 1;
    }
}

struct Sender<W: BatchWriter> {
    batches: Arc<Batches<W>>,
    counted: bool,
    written: usize,
}

type Batch<W> = (
    Vec<Pending<<W as BatchWriter>::Claim, <W as BatchWriter>::Granted>>,
    Vec<Pending<<W as BatchWriter>::Release, bool>>,
);

impl<W: BatchWriter> Sender<W> {
    async fn run(mut self) {
        loop {
            // Yields, so that tasks that run at the same time can add their requests.
            yield_now().await;
            yield_now().await;
            let Some((claims, releases)) = self.next() else { return };
            self.batches.writer.write(claims, releases).await;
            self.batches.queue.lock().unanswered -= std::mem::take(&mut self.written);
        }
    }

    /// Divides the requests that wait or are unanswered. Up to 64 requests make at most two batches, so that the
    /// client prepares one while the server executes the other. More requests make at most four unanswered
    /// batches.
    fn next(&mut self) -> Option<Batch<W>> {
        let mut queue = self.batches.queue.lock();
        queue.claims.retain(|claim| !claim.answer.is_closed());
        let all = queue.claims.len() + queue.releases.len() + queue.unanswered;
        let half = all.div_ceil(2).min(HALF_UNTIL);
        let size = half.max(all.div_ceil(MOST_SENDERS)).clamp(SMALLEST, LARGEST);
        // Takes releases first, because they free keys that claims of the same batch may obtain.
        let released = queue.releases.len().min(size);
        let releases: Vec<_> = queue.releases.drain(..released).collect();
        let claimed = queue.claims.len().min(size - released);
        let claims: Vec<_> = queue.claims.drain(..claimed).collect();
        if claims.is_empty() && releases.is_empty() {
            // Done under the lock of the check above, so that a later request starts another sender.
            queue.senders -= 1;
            self.counted = false;
            return None;
        }
        self.written = claims.len() + releases.len();
        queue.unanswered += self.written;
        Some((claims, releases))
    }
}

impl<W: BatchWriter> Drop for Sender<W> {
    /// If the runtime has ended, it drops all senders. The last sender then drops the waiting requests, so that
    /// no caller waits for ever.
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        let mut queue = self.batches.queue.lock();
        queue.senders -= 1;
        queue.unanswered -= self.written;
        if queue.senders == 0 {
            queue.claims.clear();
            queue.releases.clear();
        }
    }
}

pub(crate) fn stopped() -> ServerFault {
    ServerFault::unavailable("the runtime has ended")
}

/// After more concurrent requests than [`MOST_ALONE`], this many further requests share batches.
const TOGETHER: u8 = 32;

const MOST_ALONE: usize = 4;

/// Each task has at most one unanswered batch.
const MOST_SENDERS: usize = 4;

/// In smaller batches, the cost of a request would grow by more than the overlap of two batches saves.
const SMALLEST: usize = 8;

/// Requests make more than two batches only if each batch has at least this size. Smaller batches would cost
/// more per request.
const HALF_UNTIL: usize = 32;

/// A batch of this size blocks the server for less than a millisecond.
const LARGEST: usize = 128;
