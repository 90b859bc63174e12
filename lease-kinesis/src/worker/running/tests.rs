//! Tests the log messages about the worker's own row.

use async_trait::async_trait;
use lease_core::store::{Claim, LockStore, Nonce, Obtained};
use lease_core::{LeaseOptions, Lessee};
use lease_memory::MemoryStore;
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;

use super::*;
use crate::processor::{Outcome, RecordProcessor, ShardContext};
use crate::{Application, Batch, Checkpointer, SimStream, Worker};

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

/// The log message names all possible causes.
#[tokio::test(start_paused = true)]
async fn own_row_held_by_earlier_process_is_logged() {
    let (log, _listening) = Warnings::listen_from(tracing::Level::INFO);
    let table = MemoryStore::new();
    let ttl = Duration::from_secs(30);
    let name: Lessee = "me".parse().unwrap();
    let row = "shop".parse::<Application>().unwrap().worker(&name).unwrap();
    let claim = Claim::new(row, name.clone(), Nonce::random(), ttl);
    assert!(matches!(table.obtain(&claim).await, Ok(Obtained::Granted(..))));
    let factory = |_: &ShardContext| Idle;
    let worker = Worker::builder("shop", table, SimStream::new(1), factory)
        .with_name(name)
        .with_options(LeaseOptions::new(ttl).unwrap())
        .build()
        .unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    sleep(Duration::from_secs(3)).await;

    let words = "the worker's own row is held: by another worker of this name, by an earlier process of \
    this worker, or through a request whose answer was lost";
    assert!(log.count(words) > 0, "{}", log.text());
    // The lease expires, and the worker obtains the row.
    sleep(ttl * 2).await;
    assert_eq!(handle.status().shards.len(), 1, "{}", log.text());
}
