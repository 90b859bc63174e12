//! Lists the keys that are held, and evicts a holder, for operators.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::HeldKey;
use lease_core::{GrantId, LeaseKey, StoreError};
use tokio::time::timeout;

use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::quorum::nodes::Nodes;
use crate::quorum::nodes::requests::Query;
use crate::quorum::obtain::PATIENCE;
use crate::quorum::voting::ballot::{Ballot, too_few};
use crate::scripts::{BATCH, read_page};

/// Returns whether a majority had the grant `grant`.
///
/// A heartbeat may restore the grant without the eviction on a node that has forgotten it. No majority
/// extends the lease, because the eviction stays on the other nodes.
pub(crate) async fn evict(
    nodes: &Nodes,
    key: &LeaseKey,
    grant: &GrantId,
) -> Result<bool, ServerFault> {
    let mut answers = nodes.send_all(|node| {
        let call = node.evict_call(key, grant);
        async move { node.call_bool(&call).await }
    });
    let (mut evicted, mut others, mut faults) = (0, 0, Vec::new());
    while let Some((_, answer)) = answers.next().await {
        match answer {
            Ok(true) => evicted += 1,
            Ok(false) => others += 1,
            Err(fault) => faults.push(fault),
        }
        if evicted.max(others) >= nodes.majority() {
            nodes.in_background(answers, |_, _| async {});
            return Ok(evicted > others);
        }
    }
    if evicted + others >= nodes.majority() {
        // Until its first heartbeat, a lease is on a bare majority, of which at least one node did not answer.
        return Err(ServerFault::unavailable(format!(
            "{evicted} of {} nodes have evicted the grant, and {} are needed: repeat the eviction after the \
             holder's next heartbeat",
            nodes.count(),
            nodes.majority(),
        )));
    }
    Err(too_few(evicted + others, nodes.count(), &faults))
}

/// Lists the keys whose holder has a majority, or can have one with the nodes that did not answer. A minority
/// plus one node always includes a node with such a key. So the scan lists the keys of only this number of nodes.
pub(crate) fn scan(
    nodes: &Arc<Nodes>,
    prefix: &str,
) -> BoxStream<'static, Result<HeldKey, StoreError>> {
    let state = ScanState {
        nodes: Arc::clone(nodes),
        pattern: nodes.keys.pattern(prefix),
        place: 0,
        cursor: FIRST.to_owned(),
        scanned: 0,
        listed: HashSet::new(),
        found: VecDeque::new(),
        faults: Vec::new(),
    };
    stream::unfold(Some(state), |state| async move { state?.next().await }).boxed()
}

struct ScanState {
    nodes: Arc<Nodes>,
    pattern: String,
    /// `cursor` is the position on this node.
    place: usize,
    cursor: String,
    scanned: usize,
    listed: HashSet<LeaseKey>,
    found: VecDeque<HeldKey>,
    faults: Vec<ServerFault>,
}

impl ScanState {
    async fn next(mut self) -> Option<(Result<HeldKey, StoreError>, Option<Self>)> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some((Ok(found), Some(self)));
            }
            if self.scanned > self.nodes.count() - self.nodes.majority() {
                return None;
            }
            let Some(node) = self.nodes.all.get(self.place).cloned() else {
                let fault = too_few(self.scanned, self.nodes.count(), &self.faults);
                return Some((Err(fault.into()), None));
            };
            if let Err(fault) = self.read_page(&node).await {
                self.faults.push(fault);
                self.place += 1;
                FIRST.clone_into(&mut self.cursor);
            }
        }
    }

    async fn read_page(&mut self, node: &Node) -> Result<(), ServerFault> {
        let mut command = redis::cmd("SCAN");
        command.arg(&self.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(PAGE);
        let page = read_page(&node.command(&command).await?);
        let (cursor, names) = page.ok_or_else(|| node.unreadable("scan"))?;
        let keys = names.iter().filter_map(|name| node.keys.key_of(name));
        let keys: Vec<_> = keys.filter(|key| !self.listed.contains(key)).collect();
        for keys in keys.chunks(BATCH) {
            self.add_held(keys).await?;
        }
        if cursor == FIRST {
            self.scanned += 1;
            self.place += 1;
        }
        self.cursor = cursor;
        Ok(())
    }

    async fn add_held(&mut self, keys: &[LeaseKey]) -> Result<(), ServerFault> {
        let mut answers = self.nodes.send_all(|node| {
            let keys = keys.to_vec();
            async move { node.holders_here(&keys, Query::OfReader).await }
        });
        let mut ballots: Vec<_> = keys.iter().map(|_| Ballot::new(self.nodes.count())).collect();
        let is_known = |ballot: &Ballot| {
            let known = ballot.holder().is_some() || !ballot.holder_may_appear();
            known && ballot.answered() >= self.nodes.majority()
        };
        while !ballots.iter().all(is_known) {
            let has_majority = |ballot: &Ballot| ballot.answered() >= self.nodes.majority();
            let patience = if ballots.iter().all(has_majority) { PATIENCE } else { Duration::MAX };
            let Ok(Some((place, answer))) = timeout(patience, answers.next()).await else { break };
            let holders = match answer {
                Ok(holders) => holders,
                Err(fault) => keys.iter().map(|_| Err(fault.clone())).collect(),
            };
            for (ballot, holder) in ballots.iter_mut().zip(holders) {
                ballot.add(place, holder);
            }
        }
        self.nodes.in_background(answers, |_, _| async {});
        for (key, ballot) in keys.iter().zip(ballots) {
            if ballot.answered() < self.nodes.majority() {
                return Err(too_few(ballot.answered(), self.nodes.count(), &ballot.faults));
            }
            // With the nodes that did not answer, only this lessee can have a majority.
            let nearest = if ballot.holder_may_be_unknown() { ballot.nearest() } else { None };
            if let Some(holder) = ballot.holder().or(nearest) {
                self.listed.insert(key.clone());
                self.found.push_back(HeldKey::new(key.clone(), holder));
            }
        }
        Ok(())
    }
}

const FIRST: &str = "0";

const PAGE: usize = 1000;
