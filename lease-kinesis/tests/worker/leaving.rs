//! Workers that are stopped together: each shard is free when the last of them has ended.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::{Attempt, LeaseTable, Locker};
use lease_kinesis::{
    Batch, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext, SimStream,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::setting::{IN_THE_END, Table, table, until, worker};

/// Takes some time for its last words, of another length on each shard.
struct Deliberate(Duration);

#[async_trait]
impl RecordProcessor for Deliberate {
    async fn process_records(&mut self, _: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        sleep(self.0).await;
        Ok(())
    }
}

fn deliberate(shard: &ShardContext) -> Deliberate {
    let number = shard.shard.as_str().bytes().map(u64::from).sum::<u64>();
    Deliberate(Duration::from_millis(number % 7 * 130))
}

/// How many shards a worker of another name cannot obtain now.
async fn kept_from_others(table: &Table) -> usize {
    let locker = Locker::new(table.inner()).with_lessee("stranger".parse().unwrap());
    let mut kept = 0;
    let keys = (0..12).map(|number| format!("shop/shards/shardId-{number:012}"));
    for key in keys {
        let key = key.parse().unwrap();
        assert!(table.inner().read(&key).await.unwrap().is_some(), "no row {key}");
        let attempt = locker.obtain(&key).await.unwrap();
        kept += usize::from(!matches!(attempt, Attempt::Obtained(_)));
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn shards_of_a_fleet_that_is_stopped_together_are_free() {
    for workers in [2, 3, 5] {
        for apart in [0, 1, 20, 100, 200, 400, 700, 1_000, 1_500] {
            let (table, stream) =
                (table().with_latency(Duration::from_millis(7)), SimStream::new(12));
            let (mut handles, mut running) = (Vec::new(), JoinSet::new());
            for number in 0..workers {
                let worker = worker(&table, &stream, deliberate);
                let worker = worker.with_name(format!("worker-{number}").parse().unwrap());
                let worker = worker.with_seed(number).build().unwrap();
                handles.push(worker.handle());
                running.spawn(worker.run());
            }
            let share = 12 / handles.len();
            let is_shared = || {
                let mut reads = handles.iter().map(|handle| handle.status().shards.len());
                reads.all(|reads| reads == share || reads == share + 1)
            };
            until("the shards are shared", IN_THE_END, is_shared).await;
            sleep(Duration::from_millis(1_234)).await;

            for handle in &handles {
                handle.stop();
                sleep(Duration::from_millis(apart)).await;
            }
            while let Some(ended) = running.join_next().await {
                ended.unwrap().unwrap();
            }

            let kept = kept_from_others(&table).await;
            assert_eq!(kept, 0, "{workers} workers, {apart} ms apart");
        }
    }
}
