//! Extends grants on a majority, and restores them on nodes that have forgotten them.
//!
//! A heartbeat names the token of its grant. A node with a smaller token of the same claim takes the grant's
//! token, so no withdrawal of an earlier round affects the grant. A node with a larger token of this claim
//! refuses the heartbeat.
//!
//! A claim asks a majority first, so the other nodes get the grant from the first heartbeat. Until then, one node
//! that fails leaves too few nodes for a heartbeat. Then [further rounds](FurtherRounds) restore the grant on the
//! nodes that had not been asked, and send the heartbeat again. Only the answers of a round count in it.
//!
//! A request to restore a grant may arrive after the deadline. The restored grant occupies one free node for
//! a ttl. A node that accepted a later grant refuses the restoration. Each majority has such a node, so
//! restored grants never form a majority. See docs/design/017-redis-quorum-proposals.md.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::StoreError;
use lease_core::store::{Beat, Grant, Heartbeat};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::connection::node::Node;
use crate::quorum::nodes::asked::Reach;
use crate::quorum::nodes::requests::{HeartbeatReply, Repeat};
use crate::quorum::nodes::{Answers, Nodes};
use crate::quorum::voting::tally::{HeartbeatCount, Tally};

pub(crate) type HeartbeatAnswers = mpsc::UnboundedReceiver<(usize, Result<Heartbeat, StoreError>)>;

type Sender = mpsc::UnboundedSender<(usize, Result<Heartbeat, StoreError>)>;

/// Answers a beat when a majority agrees. A spawned task receives replies of slow nodes, and restores
/// forgotten grants.
pub(crate) fn send_heartbeats(nodes: &Arc<Nodes>, beats: Arc<[(Grant, Beat)]>) -> HeartbeatAnswers {
    let (answer, answers) = mpsc::unbounded_channel();
    let nodes = Arc::clone(nodes);
    // Before the task runs: a release that follows must go to all nodes.
    let one = |(grant, beat): &(Grant, Beat)| PendingHeartbeat {
        grant: grant.clone(),
        beat: *beat,
        tally: Tally::new(nodes.count()),
        reach: nodes.asked.reach_of_heartbeat(grant.nonce),
        answered: false,
    };
    let pending: Vec<_> = beats.iter().map(one).collect();
    tokio::spawn(async move {
        let replies = nodes.send_all(|node| {
            let beats = Arc::clone(&beats);
            async move { node.extend(&beats, Repeat::No).await }
        });
        let (open, answer) = (pending.len(), Some(answer));
        let round = HeartbeatRound { nodes, pending, open, answer, waits: Waits::ForAll };
        round.run(replies).await;
    });
    answers
}

struct HeartbeatRound {
    nodes: Arc<Nodes>,
    pending: Vec<PendingHeartbeat>,
    open: usize,
    /// `None` after the last answer, so that the caller does not wait for a hung node.
    answer: Option<Sender>,
    waits: Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    ForAll,
    /// A new grant does not wait for silent nodes.
    ForNone,
}

struct PendingHeartbeat {
    grant: Grant,
    beat: Beat,
    tally: Tally,
    reach: Reach,
    answered: bool,
}

impl HeartbeatRound {
    async fn run(
        mut self,
        mut replies: Answers<Vec<Result<HeartbeatReply, crate::error::ServerFault>>>,
    ) {
        let is_new = self.pending.iter().any(|pending| pending.reach == Reach::FirstNodes);
        let mut patience = if is_new { self.nodes.hedge_delay() } else { Duration::MAX };
        loop {
            match timeout(patience, replies.next()).await {
                Ok(None) => return,
                Ok(Some((node, answers))) => {
                    for (place, reply) in answers.into_iter().enumerate() {
                        self.count(place, node, reply);
                    }
                }
                Err(_elapsed) => {
                    (patience, self.waits) = (Duration::MAX, Waits::ForNone);
                    for place in 0..self.pending.len() {
                        self.spread(place);
                    }
                }
            }
        }
    }

    /// Returns whether further rounds answer the heartbeat.
    fn spread(&mut self, place: usize) -> bool {
        let Some(pending) = self.pending.get_mut(place) else { return false };
        let is_needed = match pending.reach {
            Reach::FirstNodes => true,
            // Votes for another claim may have kept the first heartbeat from bringing the lease to all nodes.
            Reach::AllNodes => pending.tally.meets_other_claims(),
            Reach::Released => false,
        };
        let may_spread = is_needed && !pending.answered && pending.tally.may_spread();
        let (true, Some(answer)) = (may_spread, &self.answer) else { return false };
        let tally = std::mem::replace(&mut pending.tally, Tally::new(self.nodes.count()));
        let rounds = FurtherRounds {
            nodes: Arc::clone(&self.nodes),
            grant: pending.grant.clone(),
            beat: pending.beat,
        };
        tokio::spawn(rounds.run(tally, answer.clone(), place));
        pending.answered = true;
        self.close_one();
        true
    }

    fn close_one(&mut self) {
        self.open -= 1;
        if self.open == 0 {
            self.answer = None;
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
                HeartbeatCount::Open => {
                    if self.waits == Waits::ForNone {
                        self.spread(place);
                    }
                    return;
                }
                HeartbeatCount::Decided(heartbeat) => Ok(heartbeat),
                HeartbeatCount::Undecided(_) if self.spread(place) => return,
                HeartbeatCount::Undecided(fault) => Err(fault.into()),
            };
            if let Some(pending) = self.pending.get_mut(place) {
                pending.answered = true;
            }
            if let Some(sender) = &self.answer {
                drop(sender.send((place, answer)));
            }
            self.close_one();
        }
        // Another node must still have the grant, so the grant cannot have expired. The restored grant does
        // not count for this heartbeat. A majority that forgot the grant may have granted the key again.
        let Some(pending) = self.pending.get_mut(place) else { return };
        if pending.reach != Reach::Released && pending.tally.may_be_restored() {
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

/// Each round counts as the next heartbeat: each node answers after the grant was restored. So a round needs no
/// answer of an earlier one.
struct FurtherRounds {
    nodes: Arc<Nodes>,
    grant: Grant,
    beat: Beat,
}

impl FurtherRounds {
    /// `tally` has the answers of the first round.
    async fn run(self, mut tally: Tally, answer: Sender, place: usize) {
        for number in 1..=FURTHER_ROUNDS {
            if tally.meets_other_claims() || number > 1 {
                // A claim that gets no majority withdraws its votes. A late restoration arrives.
                sleep(self.nodes.hedge_delay()).await;
            }
            if answer.is_closed() {
                return;
            }
            self.restore(tally.take_without_grant()).await;
            let is_last = number == FURTHER_ROUNDS;
            let (count, counted) = self.send_again(is_last).await;
            let heartbeat = match count {
                HeartbeatCount::Decided(heartbeat) => Ok(heartbeat),
                _ if !is_last && counted.may_spread() => {
                    tally = counted;
                    continue;
                }
                HeartbeatCount::Undecided(fault) => Err(fault.into()),
                HeartbeatCount::Open => return,
            };
            drop(answer.send((place, heartbeat)));
            return;
        }
    }

    /// A late restoration continues: the next round may find the grant.
    async fn restore(&self, places: Vec<usize>) {
        let (nodes, min_run) = (&self.nodes, self.nodes.restore_delay);
        let mut restored = Answers::new();
        for place in places {
            let Some(node) = nodes.all.get(place).map(Arc::clone) else { continue };
            let (grant, beat) = (self.grant.clone(), self.beat);
            let restore = async move { (place, node.restore(&grant, beat, min_run).await) };
            restored.push(restore.boxed());
        }
        let all = async { while restored.next().await.is_some() {} };
        if timeout(nodes.patience(), all).await.is_err() {
            nodes.in_background(restored, |_, _| async {});
        }
    }

    /// Waits for silent nodes only if no further round follows that could replace their answers.
    async fn send_again(&self, is_last: bool) -> (HeartbeatCount, Tally) {
        let mut replies = self.nodes.send_all(|node| {
            let beats = [(self.grant.clone(), self.beat)];
            async move { node.extend(&beats, Repeat::Yes).await }
        });
        let mut tally = Tally::new(self.nodes.count());
        loop {
            let may_follow = !is_last && tally.may_spread();
            let patience = if may_follow { self.nodes.hedge_delay() } else { Duration::MAX };
            let Ok(Some((node, answers))) = timeout(patience, replies.next()).await else { break };
            for answer in answers {
                tally.add(node, answer);
            }
            if !matches!(tally.count(), HeartbeatCount::Open) {
                break;
            }
        }
        self.nodes.in_background(replies, |_, _| async {});
        (tally.count(), tally)
    }
}

/// Together, the rounds take longer than a claim that gets no majority.
const FURTHER_ROUNDS: u32 = 8;
