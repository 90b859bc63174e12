//! The status of one shard.

use std::time::Duration;

use lease_core::FencingToken;

use crate::names::{ShardName, StreamId};
use crate::position::Position;
use crate::shard::ShardId;
use crate::table::row::ShardRow;

/// The status of one shard that a worker reads.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardStatus {
    /// The stream. `None` if the application has one stream.
    pub stream: Option<StreamId>,
    /// The shard.
    pub shard: ShardId,
    /// The fencing token of the worker's lease.
    pub token: FencingToken,
    /// The last checkpoint.
    pub checkpoint: Position,
    /// The age of the last checkpoint.
    pub checkpoint_age: Duration,
    /// How far the last read was behind the newest record. The time since a read is added after 10 s.
    pub behind: Duration,
}

impl ShardStatus {
    /// Returns the name of the shard.
    pub fn name(&self) -> ShardName {
        ShardName { stream: self.stream.clone(), shard: self.shard.clone() }
    }

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
