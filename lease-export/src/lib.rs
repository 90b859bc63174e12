//! An exporter: events wait in a buffer, and one process at a time sends them to a sink.
//!
//! ```text
//! producers ──▶ EventBuffer ──▶ Packer ──▶ Sink
//!    │             ▲    one exporter at a time, under a lease; what was sent is removed
//!    ▼             │
//! BucketStore ──▶ Pipeline
//! ```
//!
//! [`Exporter`] puts them together. Each part is a trait, or a pure function, with an implementation
//! in memory and one in Redis or AWS; each can be used by itself.

mod batch;
mod bucket;
mod buffer;
mod dead_letters;
mod error;
mod event;
mod exported;
mod exporter;
mod failures;
mod job;
mod limits;
mod operator;
mod pipeline;
mod sending;
mod sink;
mod source;

pub use batch::{Batch, Packed, Packer, Record};
#[cfg(feature = "redis")]
pub use bucket::RedisBuckets;
pub use bucket::{Bucket, BucketOptions, BucketStore, Entry, MemoryBuckets, Piece, PutIn};
#[cfg(feature = "redis")]
pub use buffer::RedisBuffer;
pub use buffer::{
    Appended, BufferState, Capacity, EventBuffer, Fenced, Intake, MemoryBuffer, Most, Overflow,
    Pending, Position, StopCause,
};
pub use dead_letters::{BufferedDeadLetters, DeadLetters, Unsendable};
pub use error::ExportError;
pub use event::{Event, EventId};
pub use exported::{Exported, Flushed, JobFinished, Scheduled};
pub use exporter::{Exporter, Parts};
pub use job::Worked;
pub use limits::Limits;
pub use operator::{Deleted, Operator, Refusal};
pub use pipeline::{BadEvent, BadEvents, Made, Pipeline, WarnOfBadEvents};
#[cfg(feature = "firehose")]
pub use sink::FirehoseSink;
#[cfg(feature = "kinesis")]
pub use sink::KinesisSink;
pub use sink::{MemorySink, Put, Response, Retries, Sink};
pub use source::BucketSource;
