#![doc = include_str!("../README.md")]

mod checkpoint;
mod invalid;
mod plan;
mod position;
mod processor;
mod record;
mod row;
mod shard;
mod source;

pub use crate::checkpoint::{CheckpointError, Checkpointer};
pub use crate::invalid::InvalidText;
pub use crate::plan::{Member, Standing, plan};
pub use crate::position::{InitialPosition, Position, RecordNumber, SequenceNumber};
pub use crate::processor::{
    Outcome, ProcessorError, ProcessorFactory, RecordProcessor, ShardContext,
};
pub use crate::record::{Batch, Record};
pub use crate::shard::{HashKeyRange, Shard, ShardId, hash_key_of};
pub use crate::source::{
    Fetched, RawRecord, ReadFrom, ShardIterator, Source, SourceError, SourceErrorKind,
};
