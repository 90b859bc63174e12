//! A record processor in Rust for Amazon's `MultiLangDaemon`, or any daemon with its protocol.
//!
//! The daemon starts this program once for each of its shards. The daemon's properties file names
//! the program:
//!
//! ```text
//! executableName = /opt/app/multilang_child
//! streamName = orders
//! applicationName = count-per-key
//! ```
//!
//! The program reads the daemon's messages on stdin and answers on stdout, one JSON object per
//! line. Stdout must have no other text. The daemon copies stderr to its log. To try the program
//! without a daemon, type the daemon's messages:
//!
//! ```text
//! {"action":"initialize","shardId":"shardId-0","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}
//! {"action":"leaseLost"}
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use lease_kinesis::{Batch, Checkpointer, Outcome, RecordProcessor, ShardContext};
use lease_multilang::child;

struct Counts {
    shard: String,
    of: BTreeMap<Arc<str>, u64>,
}

#[async_trait]
impl RecordProcessor for Counts {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        for record in &batch.records {
            *self.of.entry(Arc::clone(&record.partition_key)).or_default() += 1;
        }
        let text = format!("{}: {:?}", self.shard, self.of);
        if let Err(error) = writeln!(std::io::stderr(), "{text}") {
            return Outcome::StopWorker(error.into());
        }
        checkpointer.checkpoint().await.into()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let counts =
        |shard: &ShardContext| Counts { shard: shard.shard.to_string(), of: BTreeMap::new() };
    let ended = child::run(counts).await;
    lease_examples::exit("multilang_child", ended.map(|_how| ExitCode::SUCCESS).map_err(Into::into))
}
