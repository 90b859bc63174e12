//! What a worker says of its own row.

use async_trait::async_trait;
use lease_core::LeaseOptions;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use super::*;
use crate::processor::{Outcome, RecordProcessor, ShardContext};
use crate::told::Told;
use crate::{Batch, Checkpointer, SimStream};

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

/// The write was done, and its answers were lost for longer than it may be repeated.
#[tokio::test(start_paused = true)]
async fn a_row_that_a_worker_has_without_knowing_is_not_said_to_be_anothers_for_sure() {
    let (told, _listening) = Told::listen();
    let table = Faulty::new(MemoryStore::new());
    table.every(Call::Obtain, Fault::LoseReply);
    let ttl = Duration::from_secs(30);
    let factory = |_: &ShardContext| Idle;
    let worker = Worker::builder("shop", table.clone(), SimStream::new(1), factory)
        .with_name("me".parse().unwrap())
        .with_options(LeaseOptions::new(ttl).unwrap())
        .build()
        .unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    sleep(ttl * 3 / 4).await;
    table.heal();
    sleep(Duration::from_secs(3)).await;

    let words = "another worker has this name, or this one had it in a former life, or has it by a \
                 write whose answer did not come";
    assert!(told.count(words) > 0, "{}", told.text());
    // It runs out, and is the worker's own again.
    sleep(ttl).await;
    assert_eq!(handle.status().shards.len(), 1, "{}", told.text());
}
