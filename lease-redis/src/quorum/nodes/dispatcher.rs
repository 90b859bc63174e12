//! Sends claims and releases to nodes in batches, from one task. A separate task for each node would also
//! wake other threads.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::connection::node::Node;
use crate::quorum::nodes::writer::write;
use crate::quorum::release::{Release, ReleaseRequest};
use crate::quorum::voting::election::{OpenElection, Stage, VoteRequest};

pub(crate) struct Dispatcher {
    nodes: Vec<Arc<Node>>,
    queues: Mutex<Queues>,
    submitted: Notify,
}

#[derive(Default)]
struct Queues {
    of_nodes: Vec<Queue>,
    is_running: bool,
}

#[derive(Default)]
struct Queue {
    claims: VecDeque<VoteRequest>,
    releases: VecDeque<ReleaseRequest>,
    in_flight: usize,
}

/// The unanswered batches. Each future returns the index of its node when the node answers.
type Writes = FuturesUnordered<BoxFuture<'static, usize>>;

impl Dispatcher {
    pub(crate) fn new(nodes: &[Arc<Node>]) -> Self {
        let queues = Queues { of_nodes: queues_of(nodes.len()), is_running: false };
        Self { nodes: nodes.to_vec(), queues: Mutex::new(queues), submitted: Notify::new() }
    }

    pub(crate) fn claim(
        self: &Arc<Self>,
        election: &OpenElection,
        places: impl Iterator<Item = usize>,
    ) {
        let mut queues = self.queues.lock();
        for place in places {
            let request = election.request(place);
            if let Some(queue) = queues.with_room(place) {
                queue.claims.push_back(request);
            }
        }
        self.run(queues);
    }

    pub(crate) fn release(
        self: &Arc<Self>,
        release: &Arc<Release>,
        places: impl Iterator<Item = usize>,
    ) {
        let mut queues = self.queues.lock();
        for place in places {
            let request = ReleaseRequest::new(release);
            if let Some(queue) = queues.with_room(place) {
                queue.releases.push_back(request);
            }
        }
        self.run(queues);
    }

    fn run(self: &Arc<Self>, mut queues: MutexGuard<'_, Queues>) {
        if std::mem::replace(&mut queues.is_running, true) {
            drop(queues);
            self.submitted.notify_one();
            return;
        }
        drop(queues);
        // A separate task, so that a dropped caller does not stop the requests of others.
        tokio::spawn(Sending { dispatcher: Arc::clone(self), is_over: false }.run());
    }
}

impl Queues {
    /// Returns `None` if the node's queue is full. While a node hangs, callers finish without its answers and
    /// send further requests, so only this limit bounds its queue.
    fn with_room(&mut self, place: usize) -> Option<&mut Queue> {
        self.of_nodes.get_mut(place).filter(|queue| queue.len() < MOST_QUEUED)
    }
}

impl Queue {
    fn len(&self) -> usize {
        self.claims.len() + self.releases.len()
    }

    /// Returns `None` if no request waits, or if enough batches are unanswered.
    fn next(&mut self, node: &Node) -> Option<(Vec<VoteRequest>, Vec<ReleaseRequest>)> {
        let most = if node.response_time() < NEAR { 1 } else { MOST_IN_FLIGHT };
        if self.len() == 0 || self.in_flight >= most {
            return None;
        }
        self.claims.retain(|claim| match claim.stage() {
            Stage::Open => true,
            // Sends a claim even after its grant, so that more nodes have the grant. A silent node would
            // receive the claim long after its release.
            Stage::Granted => !node.is_silent(),
            Stage::Over | Stage::Refused => false,
        });
        // Takes releases first, because they free keys that claims of the same batch may obtain.
        let releases: Vec<_> = self.releases.drain(..self.releases.len().min(LARGEST)).collect();
        let claimed = self.claims.len().min(LARGEST - releases.len());
        let claims: Vec<_> = self.claims.drain(..claimed).collect();
        (!claims.is_empty() || !releases.is_empty()).then_some((claims, releases))
    }
}

struct Sending {
    dispatcher: Arc<Dispatcher>,
    is_over: bool,
}

impl Sending {
    async fn run(mut self) {
        let mut writes = Writes::new();
        loop {
            // Yields, so that tasks that run at the same time can add their requests.
            yield_now().await;
            yield_now().await;
            self.start_batches(&mut writes);
            if writes.is_empty() {
                return;
            }
            select! {
                // Polls answers first: callers that get an answer may send further requests.
                biased;
                Some(place) = writes.next() => {
                    self.answered(place);
                    while let Some(Some(place)) = writes.next().now_or_never() {
                        self.answered(place);
                    }
                }
                () = self.dispatcher.submitted.notified() => (),
            }
        }
    }

    fn start_batches(&mut self, writes: &mut Writes) {
        let dispatcher = &*self.dispatcher;
        let mut queues = dispatcher.queues.lock();
        for (place, (queue, node)) in queues.of_nodes.iter_mut().zip(&dispatcher.nodes).enumerate()
        {
            while let Some((claims, releases)) = queue.next(node) {
                queue.in_flight += 1;
                let node = Arc::clone(node);
                let written = async move {
                    write(&node, claims, releases).await;
                    place
                };
                writes.push(written.boxed());
            }
        }
        if writes.is_empty() {
            // Still holds the lock of the check above, so a later request starts another task.
            queues.is_running = false;
            self.is_over = true;
        }
    }

    fn answered(&self, place: usize) {
        if let Some(queue) = self.dispatcher.queues.lock().of_nodes.get_mut(place) {
            queue.in_flight -= 1;
        }
    }
}

impl Drop for Sending {
    /// If the runtime has ended, drops all requests, so that no caller waits for ever.
    fn drop(&mut self) {
        if !self.is_over {
            let mut queues = self.dispatcher.queues.lock();
            let dropped = queues_of(self.dispatcher.nodes.len());
            let dropped = std::mem::replace(&mut queues.of_nodes, dropped);
            queues.is_running = false;
            drop(queues);
            drop(dropped);
        }
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dispatcher")
    }
}

fn queues_of(nodes: usize) -> Vec<Queue> {
    (0..nodes).map(|_| Queue::default()).collect()
}

const LARGEST: usize = 128;

/// If a node has this number of unanswered batches, further requests wait until it answers one of them. With
/// four batches, this usually takes less than a round trip.
const MOST_IN_FLIGHT: usize = 4;

/// A node that answers in less than this time gets one batch at a time, so its batches are larger.
const NEAR: Duration = Duration::from_millis(1);

const MOST_QUEUED: usize = 10_000;
