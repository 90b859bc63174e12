//! What a daemon says: what is to be done, and what came of a checkpoint.

#![expect(clippy::option_option, reason = "a field that is `null` is not one that is left out")]

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::action::{Action, Generation};
use super::error_name::ErrorName;
use super::from_child::{Asked, AskedFields, CHECKPOINT, STATUS};
use super::not_a_message::NotAMessage;
use super::text::json;
use super::wire_record::{RecordText, WireRecord};

/// What a daemon says to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum ToChild {
    /// To prepare for the records of a shard.
    Initialize(Initialize),
    /// To work on records.
    ProcessRecords(ProcessRecords),
    /// What came of a checkpoint that the child has asked for.
    Checkpoint(Reply),
    /// The shard is another's.
    LeaseLost,
    /// All records of a shard that was closed have been worked on: its end is to be checkpointed.
    ShardEnded,
    /// The shard is to be given away.
    ShutdownRequested,
    /// One of the two ends, in the first two generations.
    Shutdown(ShutdownReason),
}

/// Which shard a child is to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct Initialize {
    /// The shard's name.
    pub shard_id: String,
    /// How far it has been read; `None` where the message does not speak of it, as in the first
    /// generation.
    pub start: Option<Start>,
}

/// How far a shard has been read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct Start {
    /// Digits, or `TRIM_HORIZON`, `LATEST`, `AT_TIMESTAMP`, `SHARD_END`.
    pub sequence_number: Option<String>,
    /// The place within an aggregate.
    pub sub_sequence_number: Option<u64>,
}

/// Records to be worked on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct ProcessRecords {
    /// In order; there may be none, where the daemon was set up so.
    pub records: Vec<WireRecord>,
    /// How far they are behind the newest record, in milliseconds. The first generation does not
    /// tell.
    pub millis_behind_latest: Option<u64>,
}

/// What came of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct Reply {
    /// What was asked for, repeated.
    pub asked: Asked,
    /// Why it was not kept; `None` where it was.
    pub error: Option<ErrorName>,
}

/// Which of the two ends a `shutdown` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum ShutdownReason {
    /// `TERMINATE`: the end of the shard, which is to be checkpointed.
    Terminate,
    /// `ZOMBIE`: the shard is another's.
    Zombie,
    /// `SHARD_END`: the same as `TERMINATE`, in version 2.0.
    ShardEnd,
    /// `LEASE_LOST`: the same as `ZOMBIE`, in version 2.0.
    LeaseLost,
}

impl ToChild {
    /// One line, without its end.
    ///
    /// What a generation has no word for is left out: the start in `initialize`, how far the records
    /// are behind, sub-sequence numbers. [`LeaseLost`](Self::LeaseLost) and
    /// [`ShardEnded`](Self::ShardEnded), which the first two do not know, are a `shutdown` in both,
    /// with the reason `ZOMBIE` or `TERMINATE`.
    pub fn encode(&self, generation: Generation) -> String {
        let tells = generation > Generation::G0;
        match self {
            Self::Initialize(Initialize { shard_id, start }) => json(&InitializeText {
                action: Action::Initialize.as_str(),
                shard_id,
                sequence_number: tells.then(|| start.as_ref()?.sequence_number.as_deref()),
                sub_sequence_number: tells.then(|| start.as_ref()?.sub_sequence_number),
            }),
            Self::ProcessRecords(ProcessRecords { records, millis_behind_latest }) => {
                let record = |record| RecordText::new(record, generation);
                json(&RecordsText {
                    action: Action::ProcessRecords.as_str(),
                    records: records.iter().map(record).collect(),
                    millis_behind_latest: tells.then_some(*millis_behind_latest),
                })
            }
            Self::Checkpoint(Reply { asked, error }) => json(&ReplyText {
                action: CHECKPOINT,
                asked: AskedFields::new(asked, generation),
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

    /// Reads one line, of any generation. Fields that are not known are passed over.
    ///
    /// # Errors
    ///
    /// Where it is no message, or not one that a daemon sends.
    pub fn decode(line: &str) -> Result<Self, NotAMessage> {
        let line = line.trim();
        if line.is_empty() {
            return Err(NotAMessage::Blank);
        }
        if !line.starts_with('{') {
            return Err(match serde_json::from_str::<serde::de::IgnoredAny>(line) {
                Ok(_other) => NotAMessage::NotAnObject,
                Err(error) => NotAMessage::not_json(&error),
            });
        }
        let head: Head<'_> = read("the object", line)?;
        let word = head.action.ok_or(NotAMessage::NoAction)?;
        if word == CHECKPOINT {
            return Ok(Self::Checkpoint(read::<ReplyFields>(CHECKPOINT, line)?.into()));
        }
        if word == STATUS {
            return Err(NotAMessage::WrongWay(STATUS));
        }
        let action = Action::from_word(&word).ok_or_else(|| NotAMessage::unknown_action(&word))?;
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
                    let text = format!("reason {reason:?} is not known");
                    NotAMessage::bad_field(action.as_str(), &text)
                })?)
            }
        })
    }

    /// What it tells the child to do; `None` for a reply.
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
    /// The generation of a daemon that said this; where it is not the first, it may be either of the
    /// other two, which differ in how they end.
    pub fn is_of_first_generation(&self) -> bool {
        self.start.is_none()
    }
}

impl ShutdownReason {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminate => "TERMINATE",
            Self::Zombie => "ZOMBIE",
            Self::ShardEnd => "SHARD_END",
            Self::LeaseLost => "LEASE_LOST",
        }
    }

    /// Whether it is the end of the shard, and not the loss of its lease.
    pub fn is_end_of_shard(self) -> bool {
        matches!(self, Self::Terminate | Self::ShardEnd)
    }

    fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Terminate, Self::Zombie, Self::ShardEnd, Self::LeaseLost];
        all.into_iter().find(|reason| reason.as_str() == word)
    }
}

fn read<'a, T: Deserialize<'a>>(action: &'static str, line: &'a str) -> Result<T, NotAMessage> {
    serde_json::from_str(line).map_err(|error| {
        if error.is_data() {
            NotAMessage::bad_field(action, &error.to_string())
        } else {
            NotAMessage::not_json(&error)
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
    asked: AskedFields<'a>,
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
    // The first generation's word.
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
        let start = |sequence_number| Start { sequence_number, sub_sequence_number };
        Self { shard_id, start: sequence_number.map(start) }
    }
}

impl From<ReplyFields> for Reply {
    fn from(fields: ReplyFields) -> Self {
        let ReplyFields { sequence_number, sub_sequence_number, error } = fields;
        let asked = Asked { sequence_number, sub_sequence_number };
        Self { asked, error: error.as_deref().map(ErrorName::from) }
    }
}

/// Tells a field that is `null` from one that is not there.
fn present<'de, D: serde::Deserializer<'de>>(json: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(json).map(Some)
}
