//! Watches a key on all nodes, and reports when it may be free on a majority.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, SelectAll};
use lease_core::LeaseKey;
use lease_core::store::{Change, Freed};
use tokio::select;
use tokio::time::sleep;

use crate::connection::node::Node;
use crate::connection::watches::Watch;
use crate::connection::watches::watched::WatchedEntry;
use crate::error::ServerFault;
use crate::quorum::nodes::{Answers, Nodes};
use crate::quorum::voting::ballot::too_few;
use crate::quorum::voting::contention::Contenders;
use crate::quorum::voting::freed::FreedOn;

/// Watches all nodes, because in a bare majority only one node may have had the grant.
struct QuorumWatch {
    nodes: Arc<Nodes>,
    key: LeaseKey,
    /// While this value exists, claims of this client mark the locks that refuse them.
    watched: WatchedEntry,
    registering: Answers<Result<Watch, ServerFault>>,
    messages: SelectAll<BoxStream<'static, (usize, Message)>>,
    live: usize,
    has_marked: bool,
    marks: Answers<Result<bool, ServerFault>>,
    freed: FreedOn,
}

#[derive(Debug, Clone, Copy)]
enum Message {
    Change(Change),
    Lost,
    /// Earlier changes may have been missed.
    Watched,
}

pub(crate) async fn watch(nodes: &Arc<Nodes>, key: &LeaseKey) -> Result<Freed, ServerFault> {
    let registering = nodes.send_all(|node| {
        let channel = node.keys.channel(key);
        async move { node.watch(channel).await }
    });
    let mut watch = QuorumWatch {
        nodes: Arc::clone(nodes),
        key: key.clone(),
        watched: nodes.watched.enter(nodes.keys.channel(key)),
        registering,
        messages: SelectAll::new(),
        live: 0,
        has_marked: false,
        marks: Answers::new(),
        freed: FreedOn::new(nodes.count(), nodes.majority()),
    };
    let mut faults = Vec::new();
    while watch.live < nodes.majority() {
        match watch.registering.next().await {
            Some((place, answer)) => {
                faults.extend(answer.as_ref().err().cloned());
                watch.add(place, answer);
            }
            None => return Err(too_few(watch.live, nodes.count(), &faults)),
        }
    }
    Ok(Freed::changes(stream::unfold(watch, |mut watch| async move {
        Some((watch.next().await?, watch))
    })))
}

impl QuorumWatch {
    /// If the node has refused the watch, repeats the request.
    fn add(&mut self, place: usize, answer: Result<Watch, ServerFault>) {
        let Some(node) = self.nodes.all.get(place).cloned() else { return };
        let channel = node.keys.channel(&self.key);
        self.live += usize::from(answer.is_ok());
        let messages = stream::unfold(answer.ok(), move |watch| {
            let (node, channel) = (Arc::clone(&node), channel.clone());
            async move {
                let (message, watch) = next_message(&node, &channel, watch).await;
                Some(((place, message), watch))
            }
        });
        self.messages.push(messages.boxed());
    }

    /// Returns `None` if too few nodes are watched.
    async fn next(&mut self) -> Option<Change> {
        // A release is published only if the key is marked. A claim of this client may have marked the key
        // since the watch began.
        let mut marking = pin!(sleep(self.time_to_mark()));
        loop {
            let change = select! {
                biased;
                Some((place, message)) = self.messages.next() => match message {
                    Message::Change(change) => {
                        // The message `Taken` shows that the claim has marked the key.
                        self.has_marked |= change == Change::Taken;
                        self.freed.note(place, change)
                    }
                    Message::Lost => {
                        self.live -= 1;
                        if self.live < self.nodes.majority() {
                            return None;
                        }
                        None
                    }
                    Message::Watched => {
                        self.live += 1;
                        self.freed.note_free(place)
                    }
                },
                // A key that is not held may have been freed since the watch began. This arm must match each
                // answer. Otherwise, `select!` disables the arm, and reads no further answers.
                Some((place, is_held)) = self.marks.next() => match is_held {
                    Ok(false) => self.freed.note_free(place),
                    Ok(true) | Err(_) => None,
                },
                Some((place, answer)) = self.registering.next() => {
                    self.add(place, answer);
                    None
                }
                () = &mut marking, if !self.has_marked => {
                    self.has_marked = true;
                    if !self.watched.is_marked() {
                        self.marks = self.mark();
                    }
                    None
                }
                else => return None,
            };
            if change.is_some() {
                return change;
            }
        }
    }

    /// A waiter that obtained a contended key has already marked it. So the other waiters usually need no
    /// mark.
    fn time_to_mark(&self) -> Duration {
        match self.nodes.contention.contenders(&self.key, self.nodes.clock.now()) {
            Contenders::One => Duration::ZERO,
            Contenders::Two { .. } | Contenders::More => MARKED_AFTER,
        }
    }

    fn mark(&self) -> Answers<Result<bool, ServerFault>> {
        self.nodes.send_all(|node| {
            let key = self.key.clone();
            async move { node.mark_lock(&key).await }
        })
    }
}

/// Without a watch, registers a new watch.
async fn next_message(
    node: &Arc<Node>,
    channel: &str,
    watch: Option<Watch>,
) -> (Message, Option<Watch>) {
    if let Some(mut watch) = watch {
        return match watch.next().await {
            Some(change) => (Message::Change(change), Some(watch)),
            None => (Message::Lost, None),
        };
    }
    loop {
        sleep(node.timeout).await;
        if let Ok(watch) = node.watch(channel.to_owned()).await {
            return (Message::Watched, Some(watch));
        }
    }
}

/// A client that did not wait may have obtained a contended key without a mark.
const MARKED_AFTER: Duration = Duration::from_secs(1);
