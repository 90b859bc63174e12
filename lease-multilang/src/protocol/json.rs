//! Writes messages as JSON.

use serde::Serialize;

/// JSON escapes line feeds, so a message is one line.
#[expect(clippy::expect_used, reason = "messages contain only strings, numbers and lists")]
pub(super) fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have a JSON form")
}
