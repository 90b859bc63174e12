//! A line that is no message, and why.

use thiserror::Error;

/// Why a line is no message.
///
/// The daemon of the Kinesis Client Library passes over such lines and goes on waiting, since a
/// child's code may print as it likes. What is quoted is cut, to fit into a log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotAMessage {
    /// There is nothing on it but white space.
    #[error("the line is blank")]
    Blank,
    /// It may be anything.
    #[error("the line is not JSON: {0}")]
    NotJson(String),
    /// It is JSON, but a number, a text, a list.
    #[error("the line is JSON, but no object")]
    NotAnObject,
    /// It is an object, and does not say what of.
    #[error("the object has no action")]
    NoAction,
    /// It is another protocol's, or a later version's.
    #[error("action {0:?} is not known")]
    UnknownAction(String),
    /// It is what the other side says.
    #[error("{0} is what this side says to the other")]
    WrongWay(&'static str),
    /// It has a field that the message does not have, in this generation at least.
    #[error("{action} has no field {field:?}")]
    UnknownField {
        /// The message.
        action: &'static str,
        /// The field.
        field: String,
    },
    /// A field is missing, or is not what it must be.
    #[error("{action}: {reason}")]
    BadField {
        /// The message.
        action: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl NotAMessage {
    pub(super) fn not_json(error: &serde_json::Error) -> Self {
        Self::NotJson(cut(&error.to_string()))
    }

    pub(super) fn unknown_action(action: &str) -> Self {
        Self::UnknownAction(cut(action))
    }

    pub(super) fn unknown_field(action: &'static str, field: &str) -> Self {
        Self::UnknownField { action, field: cut(field) }
    }

    pub(super) fn bad_field(action: &'static str, reason: &str) -> Self {
        Self::BadField { action, reason: cut(reason) }
    }
}

/// Enough to find it by.
fn cut(text: &str) -> String {
    text.chars().take(MOST_QUOTED).collect()
}

/// Characters.
const MOST_QUOTED: usize = 200;
