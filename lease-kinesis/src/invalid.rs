//! Text that is not what it should be.

use thiserror::Error;

/// A text cannot be what it was given as.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidText {
    what: &'static str,
    text: String,
    rule: &'static str,
}

impl InvalidText {
    pub(crate) fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        // Enough to find it by; it may be anything, of any length.
        Self { what, text: text.chars().take(40).collect(), rule }
    }
}
