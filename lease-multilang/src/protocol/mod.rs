//! The messages of the MultiLang protocol, by which the Kinesis Client Library processes records in
//! another process.
//!
//! Start with [`ToChild`] and [`FromChild`]. [`LineReader`] and [`LineWriter`] read and write lines.
//!
//! A daemon starts one child per shard that it holds. They exchange one JSON object per line over the
//! child's stdin and stdout. The daemon sends an action ([`ToChild`]). The child answers with a status when
//! it is done, and may request checkpoints before ([`FromChild`]). Each waits for the other: there is one
//! action at a time.
//!
//! | the daemon sends | the child may request | the child answers |
//! |---|---|---|
//! | `initialize`, once | | `status` |
//! | `processRecords`, any number of times | `checkpoint`, any number of times | `status` |
//! | `shutdownRequested`, at most once | `checkpoint` | `status` |
//! | `leaseLost`, or `shutdown` with `ZOMBIE` or `LEASE_LOST` | | `status` |
//! | `shardEnded`, or `shutdown` with `TERMINATE` or `SHARD_END` | `checkpoint`: it must | `status` |
//!
//! A checkpoint without a number means all records that the child was sent. If a child requests one after
//! its `status`, the daemon may send the next records at the same moment, and cannot know whether the child
//! has read them. Such a child must request a checkpoint by number.
//!
//! The protocol has three [generations](Generation), which differ in their fields. Fields and their order
//! are those of the
//! [Kinesis Client Library](https://github.com/awslabs/amazon-kinesis-client/tree/master/amazon-kinesis-client-multilang).
//! Its parser refuses a line with an unknown field, and the sender of that line waits for ever.

mod action;
mod error_name;
mod fields;
mod from_child;
mod invalid_message;
mod json;
mod lines;
mod to_child;
mod wire_record;
mod writer;

pub use action::{Action, Generation};
pub use error_name::ErrorName;
pub use from_child::{CheckpointRequest, FromChild};
pub use invalid_message::InvalidMessage;
pub use lines::{Line, LineReader};
pub use to_child::{
    CheckpointReply, Initialize, ProcessRecords, ShutdownReason, StartPosition, ToChild,
};
pub use wire_record::WireRecord;
pub use writer::LineWriter;

/// The longest line that a child reads by default: 64 MiB.
///
/// `GetRecords` returns up to 10 MiB of data in up to 10,000 records. As base64 that is 14 MiB. The other
/// fields of a record take up to half a kilobyte, and small records out of aggregates add more. The limit
/// reserves no memory.
pub const MAX_LINE_TO_CHILD: usize = 64 * 1024 * 1024;

/// The longest line that a daemon reads by default: 1 MiB.
///
/// A child's message has fewer than 300 bytes. The child's code or a library may print longer lines, which
/// the daemon logs.
pub const MAX_LINE_FROM_CHILD: usize = 1024 * 1024;
