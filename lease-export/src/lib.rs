#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod bucket;
mod buffer;
mod collect;
mod dead_letters;
mod error;
mod event;
mod exporter;
mod limits;
mod metrics;
mod partition;
pub mod queue;
#[cfg(feature = "redis")]
mod redis;
mod sink;

pub use batch::{Batch, Packed, Packer, Record};
#[cfg(feature = "redis")]
pub use bucket::RedisBuckets;
pub use bucket::{Bucket, BucketOptions, BucketStore, Entry, MemoryBuckets, Piece, PutIn};
#[cfg(feature = "redis")]
pub use buffer::RedisBuffer;
pub use buffer::{
    Appended, BufferState, Capacity, EventBuffer, Fenced, Intake, MemoryBuffer, Overflow, Pending,
    Position, ReadLimit, StopCause,
};
pub use collect::BucketSource;
pub use collect::pipeline::{BadEvent, BadEvents, Made, Pipeline, WarnOfBadEvents};
pub use dead_letters::{BufferedDeadLetters, DeadLetters, Unsendable};
pub use error::{ServiceError, ServiceErrorKind};
pub use event::{Event, EventId};
pub use exporter::error::ExportError;
pub use exporter::exported::{Exported, Flushed, JobFinished, Scheduled};
pub use exporter::job::Worked;
pub use exporter::operator::{Deleted, Operator, Refusal};
pub use exporter::{Exporter, Parts};
pub use lease_core::{Switch, TableSwitch};
pub use limits::Limits;
pub use metrics::{ExportEnd, ExportMetrics, RejectedTo, SentBatch};
pub use partition::PartitionKey;
#[cfg(feature = "redis")]
pub use redis::RedisLink;
#[cfg(feature = "firehose")]
pub use sink::FirehoseSink;
#[cfg(feature = "kinesis")]
pub use sink::KinesisSink;
pub use sink::{MemorySink, Put, Response, Retries, Sink};
