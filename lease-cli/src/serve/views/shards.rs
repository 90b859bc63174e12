//! The view of shards: the worker, the checkpoint and the lag of each shard of an application.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, TryStreamExt};
use lease_core::StoreError;
use lease_core::store::{LeaseRecord, LeaseTable};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::arguments::ShardsArguments;
use crate::commands::shards::{lags, prefix_of, text_of};
use crate::serve::feed::View;
use crate::serve::rows::Rows;

#[derive(Debug)]
pub(crate) struct Shards {
    table: Arc<dyn LeaseTable>,
    of: Arc<ShardsArguments>,
    lags: Lags,
}

/// The lag of each shard, as a task has read it.
#[derive(Debug, Default)]
struct Lags {
    known: BTreeMap<String, Duration>,
    reading: Option<JoinHandle<BTreeMap<String, Duration>>>,
    next: Option<Instant>,
}

impl Shards {
    pub(crate) fn new(table: Arc<dyn LeaseTable>, of: ShardsArguments) -> Self {
        Self { table, of: Arc::new(of), lags: Lags::default() }
    }
}

impl View for Shards {
    async fn read(&mut self) -> Result<Arc<Rows>, StoreError> {
        let mut rows = Rows::now();
        let prefix = prefix_of(&self.of);
        let records: Vec<LeaseRecord> = self.table.list(&prefix).try_collect().await?;
        self.lags.refresh(&self.of, &records);
        for record in &records {
            let Some(shard) = record.key.as_str().strip_prefix(&prefix) else { continue };
            let text = |name: &str| text_of(&record.attributes, name);
            let lag = self.lags.known.get(record.key.as_str());
            let fields = json!({
                "worker": record.holder.as_ref().map(|holder| holder.lessee.as_str()),
                "checkpoint": text("checkpoint"),
                "parents": text("parentShardId"),
                "children": text("childShardIds"),
                "lag": lag.map(Duration::as_millis).and_then(|lag| u64::try_from(lag).ok()),
            });
            rows.add(shard, None, fields);
        }
        Ok(Arc::new(rows))
    }
}

impl Lags {
    /// Takes the lags that were read, and starts the next read once per [`PAUSE`]. The rows do not wait for Kinesis.
    fn refresh(&mut self, of: &Arc<ShardsArguments>, records: &[LeaseRecord]) {
        if self.reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            return;
        }
        // The task has ended, so its result is there.
        if let Some(Ok(known)) = take(&mut self.reading).and_then(JoinHandle::now_or_never) {
            self.known = known;
        }
        #[expect(clippy::disallowed_methods, reason = "limits requests, no lease depends on it")]
        let now = Instant::now();
        if self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + PAUSE);
            self.reading = Some(tokio::spawn(read(Arc::clone(of), records.to_vec())));
        }
    }
}

async fn read(of: Arc<ShardsArguments>, records: Vec<LeaseRecord>) -> BTreeMap<String, Duration> {
    let lags = match lags(&of, &records).await {
        Ok(lags) => lags,
        Err(failure) => {
            failure.report();
            Vec::new()
        }
    };
    let keys = records.iter().map(|record| record.key.as_str().to_owned());
    keys.zip(lags).filter_map(|(key, lag)| Some((key, lag?))).collect()
}

/// The workers share the five reads per second of each shard with this page.
const PAUSE: Duration = Duration::from_secs(30);
