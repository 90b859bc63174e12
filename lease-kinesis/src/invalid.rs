//! The error for text that does not parse.

use thiserror::Error;

/// Reports that a text, such as a shard's id, does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidText {
    what: &'static str,
    text: String,
    rule: &'static str,
}

impl InvalidText {
    pub(crate) fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        // The text may have any length.
        Self { what, text: text.chars().take(40).collect(), rule }
    }
}
