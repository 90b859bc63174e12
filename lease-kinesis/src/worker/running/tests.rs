//! What a worker says of its own row.

use async_trait::async_trait;
use lease_core::{Claim, LeaseOptions, Lessee, LockStore, Nonce, Obtained};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use super::*;
use crate::processor::{Outcome, RecordProcessor, ShardContext};
use crate::told::Told;
use crate::{Application, Batch, Checkpointer, SimStream};

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

/// The write was applied in a former life of the worker, of which nothing is known.
#[tokio::test(start_paused = true)]
async fn a_row_that_a_worker_has_without_knowing_is_not_said_to_be_anothers_for_sure() {
    let (told, _listening) = Told::listen();
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

    let words = "another worker has this name, or this one had it in a former life, or has it by a \
                 write whose answer did not come";
    assert!(told.count(words) > 0, "{}", told.text());
    // It runs out, and is the worker's own again.
    sleep(ttl * 2).await;
    assert_eq!(handle.status().shards.len(), 1, "{}", told.text());
}
