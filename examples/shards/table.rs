//! What is told of a fleet: each event in a line, and below them how things stand.

use std::fmt;

use lease_kinesis::{ShardId, ShardStatus, Status};

use crate::fleet::Fleet;

impl Fleet {
    pub(crate) fn tell(&mut self, what: impl fmt::Display) {
        let table = self.table();
        self.screen.tell(what, &table);
    }

    pub(crate) fn show(&mut self) {
        let table = self.table();
        self.screen.show(&table);
    }

    fn table(&self) -> Vec<String> {
        self.workers.iter().map(|(name, worker)| row(name, &worker.handle.status())).collect()
    }
}

fn row(name: &str, Status { shards, counters, .. }: &Status) -> String {
    let read: Vec<_> = shards.iter().map(|ShardStatus { shard, .. }| short(shard)).collect();
    let (records, count, read) = (counters.records, shards.len(), read.join(" "));
    format!("           {name:<9} {records:>6} records  {count:>3} shards  {read}")
        .trim_end()
        .to_owned()
}

/// `shardId-000000000012` as 12.
pub(crate) fn short(shard: &ShardId) -> &str {
    let number = shard.as_str().trim_start_matches("shardId-");
    let short = number.trim_start_matches('0');
    if short.is_empty() { "0" } else { short }
}
