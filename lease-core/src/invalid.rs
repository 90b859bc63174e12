//! What a caller may not ask.

use thiserror::Error;

/// A value that breaks a rule; its text names the value and the rule.
///
/// Made where the value enters, before any I/O.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub struct InvalidInput {
    sentence: String,
}

impl InvalidInput {
    /// An error that reads as `sentence`: say which value broke which rule.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into() }
    }
}
