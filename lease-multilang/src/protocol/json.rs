//! Writes messages as JSON.

use serde::Serialize;

/// Returns a message as JSON on one line. JSON escapes line feeds.
#[expect(clippy::expect_used, reason = "messages have strings, numbers and lists of those")]
pub(super) fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have a JSON form")
}
