//! The error for text that does not parse.

use thiserror::Error;

/// Reports a text that does not parse as the named type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidText {
    what: &'static str,
    text: String,
    rule: &'static str,
}

impl InvalidText {
    pub(crate) fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        // 40 characters identify the text, which may have any length.
        Self { what, text: text.chars().take(40).collect(), rule }
    }
}
