//! Rows without hash keys, as the Kinesis Client Library writes before version 2.3.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lease_core::Attributes;
use lease_core::store::LeaseTable;
use lease_kinesis::{Batch, Checkpointer, Outcome, RecordProcessor, ShardContext, SimStream};
use tokio::time::sleep;

use crate::setting::{SOON, table, until, worker};

#[derive(Clone, Default)]
struct ReceivedData(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl RecordProcessor for ReceivedData {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let data = batch.records.iter().map(|record| String::from_utf8_lossy(&record.data).into());
        self.0.lock().unwrap().extend(data);
        checkpointer.checkpoint().await.into()
    }
}

/// The records `first` (key a), `second` (key b) and `third` (key a). The MD5 of "a" is in the lower half of
/// the hash keys, and the MD5 of "b" in the upper half.
fn two_keys() -> Vec<u8> {
    let mut lines = include_str!("../../src/source/aggregate/golden.txt").lines();
    let digits = lines.find_map(|line| line.strip_prefix("two-keys ")).unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// A producer that does not know of a split may write the whole aggregate to both children.
#[tokio::test(start_paused = true)]
async fn aggregate_across_split_is_delivered_once_without_hash_keys() {
    let (table, stream, received) = (table(), SimStream::new(2), ReceivedData::default());
    for shard in stream.open_shards() {
        let key = format!("shop/shards/{}", shard.id).parse().unwrap();
        let row = Attributes::from([("checkpoint".to_owned(), "TRIM_HORIZON".into())]);
        assert!(table.inner().create(&key, &row).await.unwrap());
        stream.put_with_hash_key("of the whole", shard.hash_keys.first(), two_keys());
    }
    let processors = received.clone();
    let worker = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    until("both shards are read", SOON, || handle.status().counters.records >= 3).await;
    sleep(SOON).await;

    let mut received = received.0.lock().unwrap().clone();
    received.sort();
    assert_eq!(received, ["first", "second", "third"]);
}
