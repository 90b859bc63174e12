//! The actions of the protocol, and its generations.

use std::fmt;

/// A generation of the protocol. Each version of the Kinesis Client Library speaks one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum Generation {
    /// Versions 1.2.0 to 1.7.1. A checkpoint is one string. `shutdown` reports both the end of a shard and
    /// the loss of its lease.
    G0,
    /// Versions 1.7.2 to 1.15, and 2.0. A checkpoint is a sequence number and a sub-sequence number.
    G1,
    /// Versions 2.1 and later, including 3. The messages `shardEnded` and `leaseLost` replace `shutdown`.
    G2,
}

/// An action that the daemon requests and the child reports as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum Action {
    /// Prepare for the records of a shard.
    Initialize,
    /// Process records.
    ProcessRecords,
    /// Stop: another worker has the shard.
    LeaseLost,
    /// Checkpoint the end of a shard.
    ShardEnded,
    /// Prepare for the hand-over of the shard.
    ShutdownRequested,
    /// The end of a shard or the loss of its lease, in generations 0 and 1.
    Shutdown,
}

impl Action {
    /// Returns the action's name in a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::ProcessRecords => "processRecords",
            Self::LeaseLost => "leaseLost",
            Self::ShardEnded => "shardEnded",
            Self::ShutdownRequested => "shutdownRequested",
            Self::Shutdown => "shutdown",
        }
    }

    /// Returns the action of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [
            Self::Initialize,
            Self::ProcessRecords,
            Self::LeaseLost,
            Self::ShardEnded,
            Self::ShutdownRequested,
            Self::Shutdown,
        ];
        all.into_iter().find(|action| action.as_str() == word)
    }

    /// Returns whether the child may request a checkpoint during this action. For `shutdown`, this depends on
    /// [the reason](super::ShutdownReason).
    pub fn has_checkpoints(self) -> bool {
        match self {
            Self::Initialize | Self::LeaseLost => false,
            Self::ProcessRecords | Self::ShardEnded | Self::ShutdownRequested | Self::Shutdown => {
                true
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
