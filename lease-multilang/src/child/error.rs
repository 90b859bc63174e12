//! The errors that end a child.

use std::io;

use lease_kinesis::ProcessorError;
use thiserror::Error;

use crate::protocol::{CheckpointRequest, InvalidMessage};

/// The reason why a child ended before its shard. After this error, exit with a code other than 0.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChildError {
    /// Reading from the daemon failed.
    #[error("cannot read from the daemon")]
    Read(#[source] io::Error),
    /// Writing to the daemon failed.
    #[error("cannot write to the daemon")]
    Write(#[source] io::Error),
    /// The daemon closed the pipe, or ended, in the middle of an action, a checkpoint or a message.
    #[error("the daemon closed the pipe in the middle of {during}")]
    Gone {
        /// The name of the action, or the words "a checkpoint" or "a message".
        during: &'static str,
    },
    /// A line from the daemon is not a message.
    #[error("the daemon sent an invalid message")]
    InvalidMessage(#[from] InvalidMessage),
    /// A line from the daemon has this number of bytes, more than the limit.
    #[error("the daemon sent a line of {0} bytes, which is over the limit")]
    TooLong(u64),
    /// A line from the daemon is not UTF-8.
    #[error("the daemon sent a line that is not UTF-8")]
    NotUtf8,
    /// The daemon sent a message out of turn.
    #[error("the daemon sent {message} {when}")]
    OutOfTurn {
        /// The message.
        message: &'static str,
        /// The time at which the message arrived, as the end of a sentence.
        when: &'static str,
    },
    /// The daemon replied to another checkpoint than the child had requested.
    #[error("the daemon replied to {replied:?}, but the request was {requested:?}")]
    OtherReply {
        /// The child's request.
        requested: CheckpointRequest,
        /// The request that the reply repeats.
        replied: CheckpointRequest,
    },
    /// The processor failed to initialize.
    #[error("the processor failed to initialize")]
    Initialize(#[source] ProcessorError),
    /// A batch failed in each attempt.
    #[error("a batch failed {attempts} times")]
    Batch {
        /// The number of attempts.
        attempts: u32,
        /// The last failure.
        source: ProcessorError,
    },
    /// The processor wants to stop.
    #[error("the processor wants to stop")]
    Stopped(#[source] ProcessorError),
    /// The processor did not checkpoint the end of the shard in any attempt.
    #[error("the end of the shard was not checkpointed")]
    EndNotCheckpointed(#[source] ProcessorError),
}
