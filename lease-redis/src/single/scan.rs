//! Lists the held keys: locks and records.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::StoreError;
use lease_core::store::HeldKey;

use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::scripts::{BATCH, read_page};
use crate::single::RedisStore;

struct ScanState {
    pattern: String,
    nodes: VecDeque<Arc<Node>>,
    cursor: String,
}

impl RedisStore {
    pub(crate) fn scan_held(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let pattern = self.node.keys.pattern(prefix);
        let pages = stream::once(async move {
            let masters = self.node.masters().await?;
            let nodes = masters.unwrap_or_else(|| vec![Arc::clone(&self.node)]).into();
            Ok(ScanState { pattern, nodes, cursor: "0".to_owned() })
        });
        let pages = pages.flat_map(move |state: Result<ScanState, ServerFault>| {
            stream::unfold(Some(state), move |state| async move {
                match state? {
                    Ok(state) => self.page(state).await,
                    Err(fault) => Some((Err(fault), None)),
                }
            })
        });
        let held = pages.flat_map(|page| match page {
            Ok(held) => stream::iter(held).map(Ok).left_stream(),
            Err(fault) => stream::iter([Err(StoreError::from(fault))]).right_stream(),
        });
        held.boxed()
    }

    async fn page(
        &self,
        mut state: ScanState,
    ) -> Option<(Result<Vec<HeldKey>, ServerFault>, Option<Result<ScanState, ServerFault>>)> {
        let node = Arc::clone(state.nodes.front()?);
        let mut scan = redis::cmd("SCAN");
        scan.arg(&state.cursor).arg("MATCH").arg(&state.pattern).arg("COUNT").arg(PAGE);
        let (cursor, names) = match node.command(&scan).await.map(|answer| read_page(&answer)) {
            Ok(Some(page)) => page,
            Ok(None) => return Some((Err(node.unreadable("scan")), None)),
            Err(fault) => return Some((Err(fault), None)),
        };
        let held = self.held_of(&node, &names).await;
        if cursor == "0" {
            state.nodes.pop_front();
        }
        state.cursor = cursor;
        Some((held, Some(Ok(state))))
    }

    /// Skips names of other programs.
    async fn held_of(&self, node: &Node, names: &[String]) -> Result<Vec<HeldKey>, ServerFault> {
        let keys: Vec<_> = names.iter().filter_map(|name| node.keys.key_of(name)).collect();
        let batch = if node.has_locks() { BATCH } else { 1 };
        let mut held = Vec::new();
        for keys in keys.chunks(batch) {
            let holders = self.node.holders(keys).await?;
            let pairs = keys.iter().zip(holders);
            held.extend(pairs.filter_map(|(key, holder)| Some(HeldKey::new(key.clone(), holder?))));
        }
        Ok(held)
    }
}

const PAGE: usize = 1000;
