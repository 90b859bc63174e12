//! Releases a grant on a majority.

use std::sync::Arc;

use lease_core::store::Grant;

use crate::connection::batch::stopped;
use crate::error::ServerFault;
use crate::quorum::nodes::Nodes;
use crate::quorum::nodes::lock_text::beginning_of;
use crate::quorum::nodes::requests::above;
use crate::quorum::voting::answer_count::{AnswerCount, Wake};
use crate::quorum::voting::ballot::{majority, too_few};

pub(crate) struct Release {
    pub(crate) key: String,
    pub(crate) text: String,
    /// The token plus 1, as [`above`] returns it.
    pub(crate) above: String,
    count: AnswerCount<ReleaseCount>,
}

struct ReleaseCount {
    nodes: usize,
    done: usize,
    faults: Vec<ServerFault>,
}

impl Release {
    pub(crate) fn send(nodes: &Nodes, grant: &Grant) -> Arc<Self> {
        let count = ReleaseCount { nodes: nodes.count(), done: 0, faults: Vec::new() };
        let release = Arc::new(Self {
            key: nodes.keys.lease(&grant.key).to_string(),
            text: beginning_of(grant.nonce, grant.token),
            above: above(grant.token),
            count: AnswerCount::new(count),
        });
        nodes.dispatcher.release(&release);
        release
    }

    /// Waits until a majority of the nodes does not have the grant, or until all nodes have answered.
    pub(crate) async fn settled(&self) -> Result<(), ServerFault> {
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
        if self.done >= majority(self.nodes) {
            return Some(Ok(()));
        }
        let is_complete = self.done + self.faults.len() == self.nodes;
        is_complete.then(|| Err(too_few(self.done, self.nodes, &self.faults)))
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
