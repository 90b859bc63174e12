#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod checkpoint;
pub mod extension;
mod invalid;
mod log_throttle;
mod metrics;
mod names;
mod plan;
mod position;
mod processor;
mod record;
mod settings;
mod shard;
mod source;
mod status;
mod table;
mod time;
mod worker;

pub use crate::checkpoint::{CheckpointError, Checkpointed, Checkpointer};
pub use crate::invalid::InvalidText;
pub use crate::metrics::{Planned, ReadingEnd, TableUse, WorkerMetrics};
pub use crate::names::{Application, ShardName, StreamId};
pub use crate::plan::{Member, MemberState, plan};
pub use crate::position::{InitialPosition, Position, RecordNumber, SequenceNumber};
pub use crate::processor::{
    NeedsRestart, Outcome, ProcessorError, ProcessorFactory, RecordProcessor, ShardContext,
};
pub use crate::record::{Batch, Record};
pub use crate::settings::Checkpoints;
pub use crate::shard::{HashKeyRange, Shard, ShardId, hash_key_of};
#[cfg(feature = "aws")]
pub use crate::source::KinesisSource;
pub use crate::source::reader::Retrieval;
pub use crate::source::{
    Faults, Fetched, RawRecord, ReadFrom, ShardIterator, SimRecord, SimStream, Source, SourceError,
    SourceErrorKind,
};
pub use crate::status::{Counters, ShardStatus, Status};
pub use crate::worker::builder::{InvalidSetup, WorkerBuilder};
pub use crate::worker::{Worker, WorkerError, WorkerHandle};
