//! The messages of the MultiLang protocol of the Kinesis Client Library.
//!
//! Start with [`ToChild`] and [`FromChild`]. [`LineReader`] and [`LineWriter`] read and write lines.
//!
//! The daemon and the child exchange messages over the child's stdin and stdout, one JSON object per line.
//! The daemon sends one action ([`ToChild`]) at a time. The child may request checkpoints ([`FromChild`]),
//! and answers with a status when the action is done.
//!
//! | the daemon sends | the child may request | the child answers |
//! |---|---|---|
//! | `initialize`, once | | `status` |
//! | `processRecords`, any number of times | `checkpoint`, any number of times | `status` |
//! | `shutdownRequested`, at most once | `checkpoint` | `status` |
//! | `leaseLost`, or `shutdown` with `ZOMBIE` or `LEASE_LOST` | | `status` |
//! | `shardEnded`, or `shutdown` with `TERMINATE` or `SHARD_END` | `checkpoint`, at least once | `status` |
//!
//! A checkpoint without a number covers all records that the daemon has sent to the child. After its
//! `status`, a child must request checkpoints by number. The daemon may send the next records at the same
//! moment.
//!
//! The protocol has three [generations](Generation), whose fields and their order are the same as in the
//! [Kinesis Client
//! Library](https://github.com/awslabs/amazon-kinesis-client/tree/master/amazon-kinesis-client-multilang).
//! The library's parser refuses a line with an unknown field. Then the sender of the line waits for ever.

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

/// The longest line that a child reads by default: 64 MiB. `GetRecords` returns up to 10 MiB of data in up to
/// 10,000 records, which is 14 MiB in base64. The other fields of records and of aggregates add to this size.
pub const MAX_LINE_TO_CHILD: usize = 64 * 1024 * 1024;

/// The longest line that a daemon reads by default: 1 MiB. A child's message has fewer than 300 bytes.
pub const MAX_LINE_FROM_CHILD: usize = 1024 * 1024;
