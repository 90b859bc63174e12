#![doc = include_str!("../README.md")]

mod aggregate;
mod board;
mod builder;
mod checkpoint;
mod decide;
mod expected;
mod fleet;
mod invalid;
#[cfg(feature = "kcl")]
mod kcl;
mod lifecycle;
#[cfg(feature = "multilang")]
pub mod multilang;
mod names;
mod plan;
mod position;
mod processor;
mod reader;
mod record;
mod repeats;
mod resting;
mod row;
mod running;
mod settings;
mod shard;
mod shard_task;
mod snapshot;
mod source;
mod sync;
mod time;
#[cfg(test)]
mod told;
mod worker;

pub use crate::board::{Counters, ShardStatus, Status};
pub use crate::builder::{InvalidSetup, WorkerBuilder};
pub use crate::checkpoint::{CheckpointError, Checkpointed, Checkpointer};
pub use crate::invalid::InvalidText;
#[cfg(feature = "kcl")]
pub use crate::kcl::{KclTable, KclTableBuilder};
pub use crate::names::{Application, StreamId};
pub use crate::plan::{Member, Standing, plan};
pub use crate::position::{InitialPosition, Position, RecordNumber, SequenceNumber};
pub use crate::processor::{
    NeedsRestart, Outcome, ProcessorError, ProcessorFactory, RecordProcessor, ShardContext,
};
pub use crate::reader::Retrieval;
pub use crate::record::{Batch, Record};
pub use crate::settings::Checkpoints;
pub use crate::shard::{HashKeyRange, Shard, ShardId, hash_key_of};
#[cfg(feature = "aws")]
pub use crate::source::KinesisSource;
pub use crate::source::{
    Faults, Fetched, RawRecord, ReadFrom, ShardIterator, SimRecord, SimStream, Source, SourceError,
    SourceErrorKind,
};
pub use crate::worker::{Worker, WorkerError, WorkerHandle};
