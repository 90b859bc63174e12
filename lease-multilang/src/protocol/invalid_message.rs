//! The reasons why a line is not a message.

use thiserror::Error;

/// The reason why a line is not a message. Quoted text is cut to 200 characters.
///
/// The daemon of the Kinesis Client Library ignores such lines, because the child's code may print anything.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidMessage {
    /// The line has only white space.
    #[error("the line is blank")]
    Blank,
    /// The line is not JSON.
    #[error("the line is not JSON: {0}")]
    NotJson(String),
    /// The line is JSON, but not an object.
    #[error("the line is JSON, but not an object")]
    NotAnObject,
    /// The object has no field `action`.
    #[error("the object has no action")]
    NoAction,
    /// The action belongs to another protocol or a later version.
    #[error("action {0:?} is unknown")]
    UnknownAction(String),
    /// The message exists only in the other direction.
    #[error("{0} is a message in the other direction")]
    WrongDirection(&'static str),
    /// The object has a field that the message does not have in this generation.
    #[error("{action} has no field {field:?}")]
    UnknownField {
        /// The message.
        action: &'static str,
        /// The field.
        field: String,
    },
    /// A field is missing or invalid.
    #[error("{action}: {reason}")]
    BadField {
        /// The message.
        action: &'static str,
        /// The reason.
        reason: String,
    },
}

impl InvalidMessage {
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

fn cut(text: &str) -> String {
    text.chars().take(MOST_QUOTED).collect()
}

/// The maximum length of quoted text, in characters.
const MOST_QUOTED: usize = 200;
