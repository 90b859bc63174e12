//! Watches a key on all nodes, and wakes once it may be free on a majority.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lease_core::LeaseKey;
use lease_core::store::Freed;
use tokio::select;
use tokio::time::sleep;

use crate::connection::node::Node;
use crate::connection::watches::Watch;
use crate::connection::watches::watched::WatchedEntry;
use crate::error::ServerFault;
use crate::quorum::nodes::{Answers, Nodes};
use crate::quorum::voting::ballot::too_few;

/// A watch of one key on all nodes.
struct QuorumWatch {
    nodes: Arc<Nodes>,
    key: LeaseKey,
    /// Claims of this client mark the locks that refuse them for as long as this exists.
    watched: WatchedEntry,
    /// The watches of nodes that have not answered yet.
    registering: Answers<Result<Watch, Unregistered>>,
    /// Each completes when the key may be free on one node.
    notices: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// Why a node has no watch.
struct Unregistered {
    fault: ServerFault,
    node: Arc<Node>,
    channel: String,
}

/// Registers a watch of `key` on a majority of the nodes.
pub(crate) async fn watch(nodes: &Arc<Nodes>, key: &LeaseKey) -> Result<Freed, ServerFault> {
    let registering = nodes.send_all(|node| {
        let channel = node.keys.channel(key);
        async move {
            let watch = node.watch(channel.clone()).await;
            watch.map_err(|fault| Unregistered { fault, node, channel })
        }
    });
    let mut watch = QuorumWatch {
        nodes: Arc::clone(nodes),
        key: key.clone(),
        watched: nodes.watched.enter(nodes.keys.channel(key)),
        registering,
        notices: FuturesUnordered::new(),
    };
    let (mut registered, mut faults) = (0, Vec::new());
    while registered < nodes.majority() {
        match watch.registering.next().await {
            Some((_, answer)) => {
                match &answer {
                    Ok(_) => registered += 1,
                    Err(refused) => faults.push(refused.fault.clone()),
                }
                watch.add(answer);
            }
            None => return Err(too_few(registered, nodes.count(), &faults)),
        }
    }
    Ok(Freed::when(watch.freed()))
}

impl QuorumWatch {
    fn add(&self, answer: Result<Watch, Unregistered>) {
        self.notices.push(match answer {
            Ok(mut watch) => async move { watch.woken().await }.boxed(),
            Err(Unregistered { node, channel, .. }) => watched_late(node, channel).boxed(),
        });
    }

    /// Completes once the key may be free on a majority. All nodes are watched: of a bare majority, only one
    /// node may have had the grant.
    async fn freed(mut self) {
        // A release is published only if a client waits, so the key is marked first, unless a claim of this
        // client has marked it since the watch began.
        let mut marks = if self.watched.is_marked() { Answers::new() } else { self.mark() };
        let mut heard = 0;
        while heard < self.nodes.majority() {
            select! {
                // Notices first, since they may suffice.
                biased;
                Some(()) = self.notices.next() => heard += 1,
                // Freed on this node since the watch began, or never held there.
                Some((_, is_held)) = marks.next() => heard += usize::from(matches!(is_held, Ok(false))),
                Some((_, answer)) = self.registering.next() => self.add(answer),
                else => return,
            }
        }
    }

    fn mark(&self) -> Answers<Result<bool, ServerFault>> {
        self.nodes.send_all(|node| {
            let key = self.key.clone();
            async move { node.mark_lock(&key).await }
        })
    }
}

/// Watches `node` after the first attempt has failed. Completion counts as a notice, since a notice may
/// have been missed in the meantime.
async fn watched_late(node: Arc<Node>, channel: String) {
    loop {
        sleep(node.timeout).await;
        if node.watch(channel.clone()).await.is_ok() {
            return;
        }
    }
}
