//! What a child says: that it has done what it was told, or which checkpoint it wants.

use serde::Serialize;

use super::action::{Action, Generation};
use super::fields::Fields;
use super::not_a_message::NotAMessage;
use super::text::json;

/// What a child says to its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a further one would be another protocol")]
pub enum FromChild {
    /// It wants a checkpoint, and waits for the reply.
    Checkpoint(Asked),
    /// It has done what it was told.
    Status {
        /// The word for that, as the child has it: a daemon compares it with what it said.
        response_for: Option<String>,
    },
}

/// The checkpoint that a child wants, in its own words: they may not be a number at all, and the
/// reply repeats them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct Asked {
    /// Up to and with this; where it is missing, with all that was delivered.
    pub sequence_number: Option<String>,
    /// The place within an aggregate; where it is missing, 0. The first generation has none.
    pub sub_sequence_number: Option<i64>,
}

impl FromChild {
    /// That `action` is done.
    pub fn done(action: Action) -> Self {
        Self::Status { response_for: Some(action.as_str().into()) }
    }

    /// One line, without its end.
    pub fn encode(&self, generation: Generation) -> String {
        match self {
            Self::Checkpoint(asked) => {
                json(&AskedText { action: CHECKPOINT, asked: AskedFields::new(asked, generation) })
            }
            Self::Status { response_for } => {
                json(&StatusText { action: STATUS, response_for: response_for.as_deref() })
            }
        }
    }

    /// Reads one line as strictly as the daemon of the Kinesis Client Library does, and no more
    /// strictly: a number may be written as a text, a text as a number; what comes after the object
    /// is not looked at.
    ///
    /// # Errors
    ///
    /// Where the line is to be passed over: above all, where the message has a field that it has not
    /// in this generation.
    pub fn decode(line: &str, generation: Generation) -> Result<Self, NotAMessage> {
        let fields = Fields::read(line)?;
        let action = fields.action()?;
        match &*action {
            CHECKPOINT => {
                let (sequence_number, sub_sequence_number) = match generation {
                    Generation::G0 => {
                        fields.are(CHECKPOINT, &["checkpoint", "error"])?;
                        (fields.text(CHECKPOINT, "checkpoint")?, None)
                    }
                    Generation::G1 | Generation::G2 => {
                        let known = ["sequenceNumber", "subSequenceNumber", "error"];
                        fields.are(CHECKPOINT, &known)?;
                        let sequence = fields.text(CHECKPOINT, "sequenceNumber")?;
                        (sequence, fields.number(CHECKPOINT, "subSequenceNumber")?)
                    }
                };
                Ok(Self::Checkpoint(Asked { sequence_number, sub_sequence_number }))
            }
            STATUS => {
                fields.are(STATUS, &["responseFor"])?;
                Ok(Self::Status { response_for: fields.text(STATUS, "responseFor")? })
            }
            other => match Action::from_word(other) {
                Some(action) => Err(NotAMessage::WrongWay(action.as_str())),
                None => Err(NotAMessage::unknown_action(other)),
            },
        }
    }
}

/// The same fields, in what a child asks and in the reply to it.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum AskedFields<'a> {
    G0 {
        checkpoint: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    Later {
        sequence_number: Option<&'a str>,
        sub_sequence_number: Option<i64>,
    },
}

impl<'a> AskedFields<'a> {
    pub(super) fn new(asked: &'a Asked, generation: Generation) -> Self {
        let sequence_number = asked.sequence_number.as_deref();
        match generation {
            Generation::G0 => Self::G0 { checkpoint: sequence_number },
            Generation::G1 | Generation::G2 => {
                Self::Later { sequence_number, sub_sequence_number: asked.sub_sequence_number }
            }
        }
    }
}

#[derive(Serialize)]
struct AskedText<'a> {
    action: &'static str,
    #[serde(flatten)]
    asked: AskedFields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusText<'a> {
    action: &'static str,
    response_for: Option<&'a str>,
}

pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const STATUS: &str = "status";
