//! Extends grants on a majority, and restores them on nodes that have forgotten them.
//!
//! A heartbeat names the token of its grant. A node with a smaller token of the same claim takes the grant's
//! token, so no withdrawal of an earlier round affects the grant. A node with a larger token of this claim
//! refuses the heartbeat.
//!
//! A request to restore a grant may arrive after the deadline. The restored grant occupies one free node for
//! a ttl. A node that accepted a later grant refuses the restoration. Each majority has such a node, so
//! restored grants never form a majority. See docs/design/017-redis-quorum-proposals.md.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use lease_core::StoreError;
use lease_core::store::{Beat, Grant, Heartbeat};
use tokio::sync::mpsc;

use crate::connection::node::Node;
use crate::quorum::nodes::requests::HeartbeatReply;
use crate::quorum::nodes::{Answers, Nodes};
use crate::quorum::voting::tally::{HeartbeatCount, Tally};

pub(crate) type HeartbeatAnswers = mpsc::UnboundedReceiver<(usize, Result<Heartbeat, StoreError>)>;

/// Answers a beat when a majority agrees. A spawned task receives replies of slow nodes, and restores
/// forgotten grants.
pub(crate) fn send_heartbeats(nodes: &Arc<Nodes>, beats: Arc<[(Grant, Beat)]>) -> HeartbeatAnswers {
    let (answer, answers) = mpsc::unbounded_channel();
    let nodes = Arc::clone(nodes);
    tokio::spawn(async move {
        let replies = nodes.send_all(|node| {
            let beats = Arc::clone(&beats);
            async move { node.extend(&beats).await }
        });
        let open = beats.len();
        let one = |(grant, beat): &(Grant, Beat)| PendingHeartbeat {
            grant: grant.clone(),
            beat: *beat,
            tally: Tally::new(nodes.count()),
            answered: false,
        };
        let pending = beats.iter().map(one).collect();
        HeartbeatRound { nodes, pending, open, answer: Some(answer) }.run(replies).await;
    });
    answers
}

struct HeartbeatRound {
    nodes: Arc<Nodes>,
    pending: Vec<PendingHeartbeat>,
    open: usize,
    /// `None` after the last answer, so that the caller does not wait for a hung node.
    answer: Option<mpsc::UnboundedSender<(usize, Result<Heartbeat, StoreError>)>>,
}

struct PendingHeartbeat {
    grant: Grant,
    beat: Beat,
    tally: Tally,
    answered: bool,
}

impl HeartbeatRound {
    async fn run(
        mut self,
        mut replies: Answers<Vec<Result<HeartbeatReply, crate::error::ServerFault>>>,
    ) {
        while let Some((node, answers)) = replies.next().await {
            for (place, reply) in answers.into_iter().enumerate() {
                self.count(place, node, reply);
            }
        }
    }

    fn count(
        &mut self,
        place: usize,
        node: usize,
        reply: Result<HeartbeatReply, crate::error::ServerFault>,
    ) {
        let Some(pending) = self.pending.get_mut(place) else { return };
        pending.tally.add(node, reply);
        if !pending.answered {
            let answer = match pending.tally.count() {
                HeartbeatCount::Open => return,
                HeartbeatCount::Decided(heartbeat) => Ok(heartbeat),
                HeartbeatCount::Undecided(fault) => Err(fault.into()),
            };
            pending.answered = true;
            self.open -= 1;
            if let Some(sender) = &self.answer {
                drop(sender.send((place, answer)));
            }
        }
        if self.open == 0 {
            self.answer = None;
        }
        // Another node must still have the grant, so the grant cannot have expired. The restored grant does
        // not count for this heartbeat. A majority that forgot the grant may have granted the key again.
        let Some(pending) = self.pending.get_mut(place) else { return };
        if pending.tally.may_be_restored() {
            for forgetful in std::mem::take(&mut pending.tally.missing) {
                if let Some(node) = self.nodes.all.get(forgetful) {
                    restore(&self.nodes, node, forgetful, pending);
                }
            }
        }
    }
}

fn restore(nodes: &Nodes, node: &Arc<Node>, place: usize, pending: &PendingHeartbeat) {
    let (node, grant, beat) = (Arc::clone(node), pending.grant.clone(), pending.beat);
    let (sent, min_run) = (Answers::new(), nodes.restore_delay);
    let restore = async move { (place, node.restore(&grant, beat, min_run).await) };
    sent.push(restore.boxed());
    // If the restoration fails, the next heartbeat tries again.
    nodes.in_background(sent, |_, _| async {});
}
