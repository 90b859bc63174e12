//! What a child is told to do, and in which words: those have changed twice.

use std::fmt;

/// The protocol's generations, by the daemon that speaks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum Generation {
    /// Versions 1.2.0 to 1.7.1 of the Kinesis Client Library: a checkpoint is one text, an end is
    /// called `shutdown`.
    G0,
    /// 1.7.2 to 1.15 and 2.0: a checkpoint is a sequence number and a sub-sequence number.
    G1,
    /// 2.1 and later, also 3: an end is called `leaseLost` or `shardEnded`.
    G2,
}

/// What a child is told to do, and says that it has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum Action {
    /// To prepare for the records of a shard.
    Initialize,
    /// To work on records.
    ProcessRecords,
    /// To stop: the shard is another's.
    LeaseLost,
    /// To checkpoint the end of a shard.
    ShardEnded,
    /// To get ready for the shard's being given away.
    ShutdownRequested,
    /// Either of the two ends, before there were words for them.
    Shutdown,
}

impl Action {
    /// The word for it.
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

    /// What `word` says to do.
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

    /// Whether a checkpoint may be asked for before it is done.
    ///
    /// In `shutdown` it depends on [the reason](super::ShutdownReason).
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
