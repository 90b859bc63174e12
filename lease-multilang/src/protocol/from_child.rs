//! Messages from a child.

use serde::Serialize;

use super::action::{Action, Generation};
use super::fields::Fields;
use super::invalid_message::InvalidMessage;
use super::json::json;

/// A message from a child to its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a further message would be another protocol")]
pub enum FromChild {
    /// The child requests a checkpoint, and waits for the reply.
    Checkpoint(CheckpointRequest),
    /// The child has done an action.
    Status {
        /// The name of the action. The daemon compares it with the action that it sent.
        response_for: Option<String>,
    },
}

/// A child's request for a checkpoint. The sequence number may be any text, which the reply repeats.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct CheckpointRequest {
    /// The last record to checkpoint. `None` for all delivered records.
    pub sequence_number: Option<String>,
    /// The position within an aggregate. `None` for 0, and in the first generation.
    pub sub_sequence_number: Option<i64>,
}

impl FromChild {
    /// Returns the status that reports `action` as done.
    pub fn done(action: Action) -> Self {
        Self::Status { response_for: Some(action.as_str().into()) }
    }

    /// Returns the message as one line, without a line feed.
    pub fn encode(&self, generation: Generation) -> String {
        match self {
            Self::Checkpoint(request) => json(&RequestText {
                action: CHECKPOINT,
                request: RequestFields::new(request, generation),
            }),
            Self::Status { response_for } => {
                json(&StatusText { action: STATUS, response_for: response_for.as_deref() })
            }
        }
    }

    /// Parses one line by the rules of the Kinesis Client Library's daemon. Converts numbers to strings and
    /// back. Ignores text after the object.
    ///
    /// # Errors
    ///
    /// If the line is not a message of this generation.
    pub fn decode(line: &str, generation: Generation) -> Result<Self, InvalidMessage> {
        let fields = Fields::read(line)?;
        let action = fields.action()?;
        match &*action {
            CHECKPOINT => {
                let (sequence_number, sub_sequence_number) = match generation {
                    Generation::G0 => {
                        fields.check(CHECKPOINT, &["checkpoint", "error"])?;
                        (fields.text(CHECKPOINT, "checkpoint")?, None)
                    }
                    Generation::G1 | Generation::G2 => {
                        let known = ["sequenceNumber", "subSequenceNumber", "error"];
                        fields.check(CHECKPOINT, &known)?;
                        let sequence = fields.text(CHECKPOINT, "sequenceNumber")?;
                        (sequence, fields.number(CHECKPOINT, "subSequenceNumber")?)
                    }
                };
                Ok(Self::Checkpoint(CheckpointRequest { sequence_number, sub_sequence_number }))
            }
            STATUS => {
                fields.check(STATUS, &["responseFor"])?;
                Ok(Self::Status { response_for: fields.text(STATUS, "responseFor")? })
            }
            other => match Action::from_word(other) {
                Some(action) => Err(InvalidMessage::WrongDirection(action.as_str())),
                None => Err(InvalidMessage::unknown_action(other)),
            },
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum RequestFields<'a> {
    G0 {
        checkpoint: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    Later {
        sequence_number: Option<&'a str>,
        sub_sequence_number: Option<i64>,
    },
}

impl<'a> RequestFields<'a> {
    pub(super) fn new(request: &'a CheckpointRequest, generation: Generation) -> Self {
        let sequence_number = request.sequence_number.as_deref();
        match generation {
            Generation::G0 => Self::G0 { checkpoint: sequence_number },
            Generation::G1 | Generation::G2 => {
                Self::Later { sequence_number, sub_sequence_number: request.sub_sequence_number }
            }
        }
    }
}

#[derive(Serialize)]
struct RequestText<'a> {
    action: &'static str,
    #[serde(flatten)]
    request: RequestFields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusText<'a> {
    action: &'static str,
    response_for: Option<&'a str>,
}

pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const STATUS: &str = "status";
