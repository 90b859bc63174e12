//! Writes messages as JSON.

use serde::Serialize;

/// Returns a message as JSON on one line. JSON escapes line feeds.
#[expect(clippy::expect_used, reason = "messages contain only strings, numbers and lists")]
pub(super) fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have a JSON form")
}
