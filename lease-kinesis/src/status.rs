//! What a worker has, and how it gets on: kept up by its tasks, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::{FencingToken, LeaseKey};
use tokio::time::Instant;

use crate::names::StreamId;
use crate::position::Position;
use crate::record::Batch;
use crate::row::ShardRow;
use crate::shard::ShardId;
use crate::time::now;

/// How a worker gets on.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Status {
    /// What it reads now.
    pub shards: Vec<ShardStatus>,
    /// What happened since it began.
    pub counters: Counters,
}

/// How the reading of one shard gets on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardStatus {
    /// Which stream; `None` where the application has one.
    pub stream: Option<StreamId>,
    /// Which shard.
    pub shard: ShardId,
    /// Under which token it is read.
    pub token: FencingToken,
    /// How far it is checkpointed.
    pub checkpoint: Position,
    /// How long ago it was.
    pub checkpoint_age: Duration,
    /// How far the last read was behind the newest record; and the time since, where the stream has
    /// not been read for 10 s.
    pub behind: Duration,
}

/// What happened to a worker since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Shards that it obtained.
    pub obtained: u64,
    /// Shards that it handed over to another worker.
    pub handed_over: u64,
    /// Shards whose lease it lost.
    pub lost: u64,
    /// Shards that it read to their end.
    pub ended: u64,
    /// Records that were worked on.
    pub records: u64,
    /// Records that were delivered again, since the batch had failed or the processor was made
    /// anew. What another worker had delivered and not checkpointed is known to nobody.
    pub replayed: u64,
    /// Records of batches that a processor skipped.
    pub skipped: u64,
    /// Batches that failed.
    pub failed_batches: u64,
    /// Processors that had to be made anew.
    pub restarts: u64,
    /// Looks at the table.
    pub ticks: u64,
    /// Rows that were read by those.
    pub rows_read: u64,
}

/// Where the tasks of a worker write.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    lines: Arc<Mutex<Lines>>,
}

#[derive(Debug, Default)]
struct Lines {
    shards: BTreeMap<LeaseKey, Line>,
    counters: Counters,
}

#[derive(Debug)]
struct Line {
    status: ShardStatus,
    checkpointed: Instant,
    read: Instant,
}

/// The line of one shard, which goes with it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    board: Board,
    key: LeaseKey,
}

impl ShardStatus {
    pub(crate) fn new(row: &ShardRow, token: FencingToken) -> Self {
        Self {
            stream: row.stream.clone(),
            shard: row.shard.clone(),
            token,
            checkpoint: row.checkpoint.clone(),
            checkpoint_age: Duration::ZERO,
            behind: Duration::ZERO,
        }
    }
}

impl Board {
    pub(crate) fn status(&self) -> Status {
        let lines = self.lines();
        let aged = |line: &Line| {
            let unread = line.read.elapsed();
            let more = if unread < READ_LATELY { Duration::ZERO } else { unread };
            ShardStatus {
                checkpoint_age: line.checkpointed.elapsed(),
                behind: line.status.behind + more,
                ..line.status.clone()
            }
        };
        Status { shards: lines.shards.values().map(aged).collect(), counters: lines.counters }
    }

    pub(crate) fn ticked(&self, rows: usize) {
        let counters = &mut self.lines().counters;
        counters.ticks += 1;
        counters.rows_read += count(rows);
    }

    /// A shard was obtained.
    pub(crate) fn enter(&self, key: LeaseKey, status: ShardStatus) -> Entry {
        let mut lines = self.lines();
        lines.counters.obtained += 1;
        lines.shards.insert(key.clone(), Line { status, checkpointed: now(), read: now() });
        Entry { board: self.clone(), key }
    }

    /// A shard is read no longer.
    pub(crate) fn leave(&self, key: &LeaseKey) {
        self.lines().shards.remove(key);
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    pub(crate) fn behind(&self, behind: Duration) {
        self.line(|line| {
            line.status.behind = behind;
            line.read = now();
        });
    }

    pub(crate) fn checkpointed(&self, position: &Position) {
        self.line(|line| {
            line.status.checkpoint = position.clone();
            line.checkpointed = now();
        });
    }

    pub(crate) fn since_checkpoint(&self) -> Duration {
        let lines = self.board.lines();
        lines.shards.get(&self.key).map_or(Duration::ZERO, |line| line.checkpointed.elapsed())
    }

    pub(crate) fn worked(&self, records: usize) {
        self.count(|counters| counters.records += count(records));
    }

    pub(crate) fn skipped(&self, batch: &Batch) {
        self.count(|counters| counters.skipped += count(batch.records.len()));
    }

    /// A batch is to be delivered again.
    pub(crate) fn failed(&self, batch: &Batch) {
        self.count(|counters| {
            counters.failed_batches += 1;
            counters.replayed += count(batch.records.len());
        });
    }

    pub(crate) fn restarted(&self) {
        self.count(|counters| counters.restarts += 1);
    }

    pub(crate) fn handed_over(&self) {
        self.count(|counters| counters.handed_over += 1);
    }

    pub(crate) fn lost(&self) {
        self.count(|counters| counters.lost += 1);
    }

    pub(crate) fn ended(&self) {
        self.count(|counters| counters.ended += 1);
    }

    fn line(&self, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.board.lines().shards.get_mut(&self.key) {
            change(line);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.board.lines().counters);
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A stream that pushes does so each five seconds, also where there is nothing new.
const READ_LATELY: Duration = Duration::from_secs(10);
