//! Why a child ends before its daemon wants it to.

use std::io;

use thiserror::Error;

use crate::multilang::{Asked, NotAMessage};
use crate::processor::ProcessorError;

/// Why a child ended before its daemon wanted it to. The process is to exit with another code than 0.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The daemon cannot be heard.
    #[error("what the daemon says cannot be read")]
    Read(#[source] io::Error),
    /// The daemon does not hear.
    #[error("the daemon cannot be written to")]
    Write(#[source] io::Error),
    /// The daemon is gone, in the middle of something.
    #[error("the daemon was gone in the middle of {during}")]
    Gone {
        /// In the middle of what.
        during: &'static str,
    },
    /// A line is no message.
    #[error("what the daemon said is no message")]
    NotAMessage(#[from] NotAMessage),
    /// A line is longer than the limit: it has this many bytes. Its message is not known, so nothing
    /// can be answered.
    #[error("the daemon said a line of {0} bytes, which is over the limit")]
    TooLong(u64),
    /// A line is not UTF-8: the daemon was started with another character set.
    #[error("the daemon said a line that is not UTF-8")]
    NotUtf8,
    /// The daemon said something whose turn it was not.
    #[error("the daemon said {said} {when}")]
    OutOfTurn {
        /// What it said.
        said: &'static str,
        /// When it did.
        when: &'static str,
    },
    /// A checkpoint was asked for, and the reply is to another.
    #[error("the daemon replied to {replied:?} when asked for {asked:?}")]
    OtherReply {
        /// What was asked for.
        asked: Asked,
        /// What the reply repeats.
        replied: Asked,
    },
    /// The processor could not begin.
    #[error("the processor could not begin")]
    Initialize(#[source] ProcessorError),
    /// A batch failed as often as it may.
    #[error("a batch failed {attempts} times")]
    Batch {
        /// How often.
        attempts: u32,
        /// The last failure.
        source: ProcessorError,
    },
    /// The processor wants to stop.
    #[error("the processor wants to stop")]
    Stopped(#[source] ProcessorError),
    /// The processor did not checkpoint the end of the shard, as often as it was told to.
    #[error("the end of the shard was not checkpointed")]
    EndNotCheckpointed(#[source] ProcessorError),
}
