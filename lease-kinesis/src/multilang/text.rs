//! How messages become text.

use serde::Serialize;

/// The text of a message; it has no line feed, since JSON has none inside a text.
#[expect(clippy::expect_used, reason = "messages have texts, numbers and lists of those")]
pub(super) fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("a message can be written")
}
