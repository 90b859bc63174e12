//! Prints the events of a fleet, and a table of its workers below them.

use std::fmt;

use lease_kinesis::{ShardId, ShardStatus, Status};

use crate::fleet::Fleet;

impl Fleet {
    pub(crate) fn print(&mut self, event: impl fmt::Display) {
        let table = self.table();
        self.screen.print(event, &table);
    }

    pub(crate) fn redraw(&mut self) {
        let table = self.table();
        self.screen.redraw(&table);
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

/// Shortens `shardId-000000000012` to 12.
pub(crate) fn short(shard: &ShardId) -> &str {
    let number = shard.as_str().trim_start_matches("shardId-");
    let short = number.trim_start_matches('0');
    if short.is_empty() { "0" } else { short }
}
