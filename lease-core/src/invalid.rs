//! The error for invalid arguments.

use thiserror::Error;

/// An invalid argument. The text names the value and the rule that the value breaks. Functions
/// return this error before any I/O.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub struct InvalidInput {
    sentence: String,
}

impl InvalidInput {
    /// Makes an error with the text `sentence`, which should name the value and the rule.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into() }
    }
}
