//! Releases a grant on a majority.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::Grant;
use tokio::time::timeout;

use crate::connection::batch::stopped;
use crate::error::ServerFault;
use crate::quorum::nodes::Nodes;
use crate::quorum::nodes::asked::Releasing;
use crate::quorum::nodes::lock_text::beginning_of;
use crate::quorum::nodes::requests::above;
use crate::quorum::voting::answer_count::{AnswerCount, Wake};
use crate::quorum::voting::ballot::{majority, too_few};

pub(crate) struct Release {
    pub(crate) key: String,
    pub(crate) text: String,
    /// The token plus 1, as [`above`] returns it.
    pub(crate) above: String,
    patience: Duration,
    count: AnswerCount<ReleaseCount>,
    /// Until all requests are answered, heartbeats do not bring the grant to other nodes.
    _first: Option<Releasing>,
}

struct ReleaseCount {
    nodes: usize,
    /// No request of the grant went to these nodes.
    unasked: usize,
    counts_unasked: bool,
    done: usize,
    faults: Vec<ServerFault>,
}

impl Release {
    /// Sends the release to the nodes that may have the grant.
    pub(crate) fn send(nodes: &Nodes, grant: &Grant) -> Arc<Self> {
        let all = nodes.count();
        let first = nodes.asked.release(grant.nonce);
        let asked = first.as_ref().map(|first| first.places);
        let unasked = asked.map_or(0, |asked| all - asked.count());
        let count = ReleaseCount {
            nodes: all,
            unasked,
            counts_unasked: false,
            done: 0,
            faults: Vec::new(),
        };
        let release = Arc::new(Self {
            key: nodes.keys.lease(&grant.key).to_string(),
            text: beginning_of(grant.nonce, grant.token),
            above: above(grant.token),
            patience: if asked.is_some() { nodes.hedge_delay() } else { Duration::MAX },
            count: AnswerCount::new(count),
            _first: first,
        });
        match asked {
            Some(asked) => nodes.dispatcher.release(&release, asked.iter()),
            None => nodes.dispatcher.release(&release, 0..all),
        }
        release
    }

    /// Waits until a majority of the nodes does not have the grant, or until all nodes have answered. Nodes that
    /// got no request of the grant count only if another node does not answer in time. So the next claim usually
    /// finds the key free on its first nodes.
    pub(crate) async fn settled(&self) -> Result<(), ServerFault> {
        if self.patience < Duration::MAX {
            let settled = self.count.wait(|count| count.settled());
            if let Ok(settled) = timeout(self.patience, settled).await {
                return settled;
            }
            self.count.with(|count| count.counts_unasked = true);
        }
        self.count.wait(|count| count.settled()).await
    }

    fn add(&self, answer: Result<bool, ServerFault>) {
        self.count.update(|count| {
            match answer {
                Ok(_was_held) => count.done += 1,
                Err(fault) => count.faults.push(fault),
            }
            ((), if count.settled().is_some() { Wake::Yes } else { Wake::No })
        });
    }
}

impl ReleaseCount {
    fn settled(&self) -> Option<Result<(), ServerFault>> {
        let free = self.done + self.unasked;
        let counted = if self.counts_unasked { free } else { self.done };
        if counted >= majority(self.nodes) {
            return Some(Ok(()));
        }
        let is_complete = free + self.faults.len() == self.nodes;
        is_complete.then(|| {
            let is_free = free >= majority(self.nodes);
            if is_free { Ok(()) } else { Err(too_few(self.done, self.nodes, &self.faults)) }
        })
    }
}

pub(crate) struct ReleaseRequest {
    release: Arc<Release>,
    is_answered: bool,
}

impl ReleaseRequest {
    pub(crate) fn new(release: &Arc<Release>) -> Self {
        Self { release: Arc::clone(release), is_answered: false }
    }

    pub(crate) fn release(&self) -> &Release {
        &self.release
    }

    /// The answer is whether the grant held the key.
    pub(crate) fn answer(mut self, answer: Result<bool, ServerFault>) {
        self.is_answered = true;
        self.release.add(answer);
    }
}

impl Drop for ReleaseRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.release.add(Err(stopped()));
        }
    }
}
