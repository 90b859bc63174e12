//! Messages to a child.

#![expect(clippy::option_option, reason = "a field that is `null` differs from a missing one")]

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::action::{Action, Generation};
use super::error_name::ErrorName;
use super::from_child::{CHECKPOINT, CheckpointRequest, RequestFields, STATUS};
use super::invalid_message::InvalidMessage;
use super::json::json;
use super::wire_record::{RecordText, WireRecord};

/// A message from a daemon to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum ToChild {
    /// Prepare for the records of a shard.
    Initialize(Initialize),
    /// Process records.
    ProcessRecords(ProcessRecords),
    /// The reply to a checkpoint request.
    Checkpoint(CheckpointReply),
    /// Another worker has the shard.
    LeaseLost,
    /// All records of a closed shard are processed. The child must checkpoint the shard's end.
    ShardEnded,
    /// The daemon will soon hand the shard over.
    ShutdownRequested,
    /// The end of the shard or the loss of its lease, in generations 0 and 1.
    Shutdown(ShutdownReason),
}

/// The shard that a child processes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct Initialize {
    /// The shard's id.
    pub shard_id: String,
    /// The position from which the daemon reads the shard. `None` in the first generation.
    pub start: Option<StartPosition>,
}

/// The position from which a daemon reads a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct StartPosition {
    /// A number in digits, `TRIM_HORIZON`, `LATEST`, `AT_TIMESTAMP` or `SHARD_END`.
    pub sequence_number: Option<String>,
    /// The position within an aggregate.
    pub sub_sequence_number: Option<u64>,
}

/// Records to process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct ProcessRecords {
    /// The records in order. May be empty.
    pub records: Vec<WireRecord>,
    /// The distance of the records to the newest record, in milliseconds. `None` in the first generation.
    pub millis_behind_latest: Option<u64>,
}

/// The reply to a checkpoint request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct CheckpointReply {
    /// The request to which this is the reply.
    pub request: CheckpointRequest,
    /// The reason why the checkpoint was not written. `None` if it was written.
    pub error: Option<ErrorName>,
}

/// The reason of a `shutdown`: the end of the shard, or the loss of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum ShutdownReason {
    /// `TERMINATE`: the shard has ended. The child must checkpoint the shard's end.
    Terminate,
    /// `ZOMBIE`: another worker has the shard.
    Zombie,
    /// `SHARD_END`: version 2.0 sends this reason instead of `TERMINATE`.
    ShardEnd,
    /// `LEASE_LOST`: version 2.0 sends this reason instead of `ZOMBIE`.
    LeaseLost,
}

impl ToChild {
    /// Returns the message as one line, without a line feed and without fields that `generation` lacks. In
    /// the first two generations, [`LeaseLost`](Self::LeaseLost) and [`ShardEnded`](Self::ShardEnded) become
    /// a `shutdown`.
    pub fn encode(&self, generation: Generation) -> String {
        let has_fields = generation > Generation::G0;
        match self {
            Self::Initialize(Initialize { shard_id, start }) => json(&InitializeText {
                action: Action::Initialize.as_str(),
                shard_id,
                sequence_number: has_fields.then(|| start.as_ref()?.sequence_number.as_deref()),
                sub_sequence_number: has_fields.then(|| start.as_ref()?.sub_sequence_number),
            }),
            Self::ProcessRecords(ProcessRecords { records, millis_behind_latest }) => {
                let record = |record| RecordText::new(record, generation);
                json(&RecordsText {
                    action: Action::ProcessRecords.as_str(),
                    records: records.iter().map(record).collect(),
                    millis_behind_latest: has_fields.then_some(*millis_behind_latest),
                })
            }
            Self::Checkpoint(CheckpointReply { request, error }) => json(&ReplyText {
                action: CHECKPOINT,
                request: RequestFields::new(request, generation),
                error: error.as_ref().map(ErrorName::as_str),
            }),
            Self::Shutdown(reason) => json(&ShutdownText::of(*reason)),
            Self::LeaseLost if generation < Generation::G2 => {
                json(&ShutdownText::of(ShutdownReason::Zombie))
            }
            Self::ShardEnded if generation < Generation::G2 => {
                json(&ShutdownText::of(ShutdownReason::Terminate))
            }
            Self::LeaseLost => json(&Head::of(Action::LeaseLost)),
            Self::ShardEnded => json(&Head::of(Action::ShardEnded)),
            Self::ShutdownRequested => json(&Head::of(Action::ShutdownRequested)),
        }
    }

    /// Parses one line of any generation. Ignores unknown fields.
    ///
    /// # Errors
    ///
    /// If the line is not a message from a daemon.
    pub fn decode(line: &str) -> Result<Self, InvalidMessage> {
        let line = line.trim();
        if line.is_empty() {
            return Err(InvalidMessage::Blank);
        }
        if !line.starts_with('{') {
            return Err(match serde_json::from_str::<serde::de::IgnoredAny>(line) {
                Ok(_other) => InvalidMessage::NotAnObject,
                Err(error) => InvalidMessage::not_json(&error),
            });
        }
        let head: Head<'_> = read("the object", line)?;
        let word = head.action.ok_or(InvalidMessage::NoAction)?;
        if word == CHECKPOINT {
            return Ok(Self::Checkpoint(read::<ReplyFields>(CHECKPOINT, line)?.into()));
        }
        if word == STATUS {
            return Err(InvalidMessage::WrongDirection(STATUS));
        }
        let action =
            Action::from_word(&word).ok_or_else(|| InvalidMessage::unknown_action(&word))?;
        Ok(match action {
            Action::Initialize => {
                Self::Initialize(read::<InitializeFields>(action.as_str(), line)?.into())
            }
            Action::ProcessRecords => {
                let fields: RecordsFields = read(action.as_str(), line)?;
                let RecordsFields { records, millis_behind_latest } = fields;
                Self::ProcessRecords(ProcessRecords { records, millis_behind_latest })
            }
            Action::LeaseLost => Self::LeaseLost,
            Action::ShardEnded => Self::ShardEnded,
            Action::ShutdownRequested => Self::ShutdownRequested,
            Action::Shutdown => {
                let ShutdownFields { reason } = read(action.as_str(), line)?;
                Self::Shutdown(ShutdownReason::from_word(&reason).ok_or_else(|| {
                    let text = format!("reason {reason:?} is unknown");
                    InvalidMessage::bad_field(action.as_str(), &text)
                })?)
            }
        })
    }

    /// Returns the action that the message requests. `None` for a reply.
    pub fn action(&self) -> Option<Action> {
        Some(match self {
            Self::Initialize(_) => Action::Initialize,
            Self::ProcessRecords(_) => Action::ProcessRecords,
            Self::LeaseLost => Action::LeaseLost,
            Self::ShardEnded => Action::ShardEnded,
            Self::ShutdownRequested => Action::ShutdownRequested,
            Self::Shutdown(_) => Action::Shutdown,
            Self::Checkpoint(_) => return None,
        })
    }
}

impl Initialize {
    /// Returns whether a daemon of the first generation sent this message.
    pub fn is_of_first_generation(&self) -> bool {
        self.start.is_none()
    }
}

impl ShutdownReason {
    /// Returns the reason's name in a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminate => "TERMINATE",
            Self::Zombie => "ZOMBIE",
            Self::ShardEnd => "SHARD_END",
            Self::LeaseLost => "LEASE_LOST",
        }
    }

    /// Returns true if the shard has ended, and false if its lease is lost.
    pub fn is_end_of_shard(self) -> bool {
        matches!(self, Self::Terminate | Self::ShardEnd)
    }

    fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Terminate, Self::Zombie, Self::ShardEnd, Self::LeaseLost];
        all.into_iter().find(|reason| reason.as_str() == word)
    }
}

fn read<'a, T: Deserialize<'a>>(action: &'static str, line: &'a str) -> Result<T, InvalidMessage> {
    serde_json::from_str(line).map_err(|error| {
        if error.is_data() {
            InvalidMessage::bad_field(action, &error.to_string())
        } else {
            InvalidMessage::not_json(&error)
        }
    })
}

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InitializeText<'a> {
    action: &'static str,
    shard_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_number: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_sequence_number: Option<Option<u64>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordsText<'a> {
    action: &'static str,
    records: Vec<RecordText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    millis_behind_latest: Option<Option<u64>>,
}

#[derive(Serialize)]
struct ReplyText<'a> {
    action: &'static str,
    #[serde(flatten)]
    request: RequestFields<'a>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct ShutdownText {
    action: &'static str,
    reason: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeFields {
    shard_id: String,
    #[serde(default, deserialize_with = "present")]
    sequence_number: Option<Option<String>>,
    sub_sequence_number: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordsFields {
    records: Vec<WireRecord>,
    millis_behind_latest: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyFields {
    // The field's name in the first generation.
    #[serde(alias = "checkpoint")]
    sequence_number: Option<String>,
    sub_sequence_number: Option<i64>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct ShutdownFields {
    reason: String,
}

impl ShutdownText {
    fn of(reason: ShutdownReason) -> Self {
        Self { action: Action::Shutdown.as_str(), reason: reason.as_str() }
    }
}

impl Head<'static> {
    fn of(action: Action) -> Self {
        Self { action: Some(Cow::Borrowed(action.as_str())) }
    }
}

impl From<InitializeFields> for Initialize {
    fn from(fields: InitializeFields) -> Self {
        let InitializeFields { shard_id, sequence_number, sub_sequence_number } = fields;
        let start = |sequence_number| StartPosition { sequence_number, sub_sequence_number };
        Self { shard_id, start: sequence_number.map(start) }
    }
}

impl From<ReplyFields> for CheckpointReply {
    fn from(fields: ReplyFields) -> Self {
        let ReplyFields { sequence_number, sub_sequence_number, error } = fields;
        let request = CheckpointRequest { sequence_number, sub_sequence_number };
        Self { request, error: error.as_deref().map(ErrorName::from) }
    }
}

/// A `null` differs from a missing field.
fn present<'de, D: serde::Deserializer<'de>>(json: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(json).map(Some)
}
