//! The MultiLang protocol, by which the Kinesis Client Library has records worked on in another
//! process: its messages, as they are written and read.
//!
//! A daemon starts one child for each shard that it holds, and talks with it over the child's stdin
//! and stdout: one JSON object per line. It says what is to be done ([`ToChild`]), the child
//! answers with a status once it is done, and may ask for checkpoints before ([`FromChild`]). Each
//! waits for the other: there is one action at a time.
//!
//! | the daemon says | the child may ask | the child ends with |
//! |---|---|---|
//! | `initialize`, once | | `status` |
//! | `processRecords`, any number of times | `checkpoint`, any number of times | `status` |
//! | `shutdownRequested`, at most once | `checkpoint` | `status` |
//! | `leaseLost`, or `shutdown` with `ZOMBIE` or `LEASE_LOST` | | `status` |
//! | `shardEnded`, or `shutdown` with `TERMINATE` or `SHARD_END` | `checkpoint`: it must | `status` |
//!
//! A checkpoint without a number means all that the child was given. A child that asks for one after its
//! `status` may be told of the next records at the same moment, and nobody can tell then whether it has
//! read them: such a child asks by number.
//!
//! The protocol has had three [generations](Generation), which differ in their fields. Fields and
//! their order are as in the
//! [Kinesis Client Library](https://github.com/awslabs/amazon-kinesis-client/tree/master/amazon-kinesis-client-multilang),
//! since its reader refuses a line with one field too many: whoever sent that waits for ever.

mod action;
pub mod child;
#[cfg(unix)]
pub mod daemon;
mod error_name;
mod fields;
mod from_child;
mod lines;
mod not_a_message;
mod text;
mod to_child;
mod wire_record;
mod writer;

pub use action::{Action, Generation};
pub use error_name::ErrorName;
pub use from_child::{Asked, FromChild};
pub use lines::{Line, LineReader};
pub use not_a_message::NotAMessage;
pub use to_child::{Initialize, ProcessRecords, Reply, ShutdownReason, Start, ToChild};
pub use wire_record::WireRecord;
pub use writer::LineWriter;

/// The longest line that a child reads, unless it is told otherwise: 64 MiB.
///
/// `GetRecords` answers up to 10 MiB of data in up to 10 000 records. As base64 that is 14 MiB, and
/// what each record says of itself may come to half a kilobyte; small records out of aggregates add
/// more. A limit is no reservation: what is not read takes no memory.
pub const LONGEST_TO_CHILD: usize = 64 * 1024 * 1024;

/// The longest line that a daemon reads, unless it is told otherwise: 1 MiB.
///
/// A message of a child's is shorter than 300 bytes. Longer lines are what its code, or a library of
/// its, has printed: that is shown in a log, and 1 MiB is long for that.
pub const LONGEST_FROM_CHILD: usize = 1024 * 1024;
