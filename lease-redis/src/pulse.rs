//! How a majority is told that its grants live.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use lease_core::{Beat, Grant, Heartbeat, StoreError};
use tokio::sync::mpsc;

use crate::ballot::{Tally, Told};
use crate::lock::Pulse;
use crate::node::Node;
use crate::nodes::{Answers, Nodes};

/// The answers to some heartbeats, each with its place.
pub(crate) type Beaten = mpsc::UnboundedReceiver<(usize, Result<Heartbeat, StoreError>)>;

/// Sends `beats` to every node, and answers each once a majority has said the same. A task goes
/// on with the nodes that are slow: one that has forgotten a grant is given it back.
pub(crate) fn beat(nodes: &Arc<Nodes>, beats: Arc<[(Grant, Beat)]>) -> Beaten {
    let (answer, answers) = mpsc::unbounded_channel();
    let nodes = Arc::clone(nodes);
    tokio::spawn(async move {
        let pulses = nodes.ask(|node| {
            let beats = Arc::clone(&beats);
            async move { node.heartbeat(&beats).await }
        });
        let open = beats.len();
        let one = |(grant, beat): &(Grant, Beat)| Pending {
            grant: grant.clone(),
            beat: *beat,
            tally: Tally::new(nodes.count()),
            told: false,
        };
        let pending = beats.iter().map(one).collect();
        Counting { nodes, pending, open, answer: Some(answer) }.run(pulses).await;
    });
    answers
}

/// Heartbeats that are being counted.
struct Counting {
    nodes: Arc<Nodes>,
    pending: Vec<Pending>,
    open: usize,
    /// Dropped with the last answer, so that nobody waits for a node that hangs.
    answer: Option<mpsc::UnboundedSender<(usize, Result<Heartbeat, StoreError>)>>,
}

struct Pending {
    grant: Grant,
    beat: Beat,
    tally: Tally,
    told: bool,
}

impl Counting {
    async fn run(mut self, mut pulses: Answers<Vec<Result<Pulse, crate::error::Fault>>>) {
        while let Some((node, answers)) = pulses.next().await {
            for (place, pulse) in answers.into_iter().enumerate() {
                self.count(place, node, pulse);
            }
        }
    }

    fn count(&mut self, place: usize, node: usize, pulse: Result<Pulse, crate::error::Fault>) {
        let Some(pending) = self.pending.get_mut(place) else { return };
        pending.tally.add(node, pulse);
        if !pending.told {
            let answer = match pending.tally.count() {
                Told::NotYet => return,
                Told::Answer(heartbeat) => Ok(heartbeat),
                Told::Unclear(fault) => Err(fault.into()),
            };
            pending.told = true;
            self.open -= 1;
            if let Some(told) = &self.answer {
                // Who has given up needs no answer.
                drop(told.send((place, answer)));
            }
        }
        if self.open == 0 {
            self.answer = None;
        }
        // Only while another node still has it, which says that it did not run out. It does not
        // count for this heartbeat: a majority that forgot it may have granted it to others.
        let Some(pending) = self.pending.get_mut(place) else { return };
        if pending.tally.may_be_put_back() {
            for forgetful in std::mem::take(&mut pending.tally.missing) {
                if let Some(node) = self.nodes.all.get(forgetful) {
                    put_back(&self.nodes, node, forgetful, pending);
                }
            }
        }
    }
}

fn put_back(nodes: &Nodes, node: &Arc<Node>, place: usize, pending: &Pending) {
    let (node, grant, beat) = (Arc::clone(node), pending.grant.clone(), pending.beat);
    let (sent, least_uptime) = (Answers::new(), nodes.least_uptime_to_be_given_back);
    let put_back = async move { (place, node.put_back(&grant, beat, least_uptime).await) };
    sent.push(put_back.boxed());
    // The next heartbeat tries again.
    nodes.in_background(sent, |_, _| async {});
}
