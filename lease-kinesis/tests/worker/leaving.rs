//! Tests workers that stop together.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::LeaseTable;
use lease_core::{Attempt, Locker};
use lease_kinesis::{
    Batch, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext, SimStream,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::setting::{IN_THE_END, Table, table, until, worker};

struct SlowShutdown(Duration);

#[async_trait]
impl RecordProcessor for SlowShutdown {
    async fn process_records(&mut self, _: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        sleep(self.0).await;
        Ok(())
    }
}

fn slow_shutdown(shard: &ShardContext) -> SlowShutdown {
    let number = shard.shard.as_str().bytes().map(u64::from).sum::<u64>();
    SlowShutdown(Duration::from_millis(number % 7 * 130))
}

/// A lessee with a new name cannot obtain a held or reserved shard.
async fn reserved_shards(table: &Table) -> usize {
    let locker = Locker::new(table.inner()).with_lessee("stranger".parse().unwrap());
    let mut reserved = 0;
    let keys = (0..12).map(|number| format!("shop/shards/shardId-{number:012}"));
    for key in keys {
        let key = key.parse().unwrap();
        assert!(table.inner().read(&key).await.unwrap().is_some(), "no row {key}");
        let attempt = locker.obtain(&key).await.unwrap();
        reserved += usize::from(!matches!(attempt, Attempt::Obtained(_)));
    }
    reserved
}

#[tokio::test(start_paused = true)]
async fn shards_are_free_after_workers_stop_together() {
    for workers in [2, 3, 5] {
        for apart in [0, 1, 20, 100, 200, 400, 700, 1_000, 1_500] {
            let (table, stream) =
                (table().with_latency(Duration::from_millis(7)), SimStream::new(12));
            let (mut handles, mut running) = (Vec::new(), JoinSet::new());
            for number in 0..workers {
                let worker = worker(&table, &stream, slow_shutdown);
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

            let reserved = reserved_shards(&table).await;
            assert_eq!(reserved, 0, "{workers} workers, {apart} ms apart");
        }
    }
}
