//! One event: a line of JSON under an id.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lease_core::InvalidInput;
use serde_json::Value;

/// One event: one line of JSON under an id.
///
/// An event may arrive more than once, always with the same id and the same line. If the receiver
/// has to recognise repetitions, put the id into the line, as [`Pipeline`](crate::Pipeline) does.
/// Clones share the text.
///
/// # Examples
///
/// ```
/// use lease_export::Event;
/// use serde_json::json;
///
/// let event = Event::new("order-7".parse()?, &json!({ "order": 7, "note": "two\nlines" }))?;
///
/// assert_eq!(event.line(), r#"{"note":"two\nlines","order":7}"#);
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    id: EventId,
    line: Arc<str>,
}

/// Names an event, so that a receiver can recognise a repetition.
///
/// 1 to [256](EventId::MAX_BYTES) bytes of UTF-8 without control characters. An id is also a
/// partition key of Kinesis, which takes up to 256 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Arc<str>);

impl Event {
    /// The longest line, in bytes: 10 MiB, the largest record that any sink takes.
    ///
    /// A buffer also keeps an event that is larger than a record of its sink. The exporter moves
    /// such an event to the [dead letters](crate::DeadLetters).
    pub const MAX_BYTES: usize = 10 * 1024 * 1024;

    /// Makes an event whose line is `body`.
    ///
    /// # Errors
    ///
    /// Fails if the line is longer than [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn new(id: EventId, body: &Value) -> Result<Self, InvalidInput> {
        // JSON escapes line breaks within strings, so the text is one line.
        Self::from_checked(id, body.to_string().into())
    }

    /// Makes an event of `line`, which must be JSON.
    ///
    /// # Errors
    ///
    /// Fails if `line` is not JSON, contains a line break, or is longer than
    /// [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn from_line(id: EventId, line: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        let line = line.into();
        if line.contains(['\n', '\r']) {
            return Err(InvalidInput::new(format!(
                "event {id} must be one line of JSON, but contains a line break: {}",
                beginning(&line)
            )));
        }
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&line) {
            return Err(InvalidInput::new(format!(
                "event {id} is not JSON, {error}: {}",
                beginning(&line)
            )));
        }
        Self::from_checked(id, line)
    }

    /// The line was checked before.
    pub(crate) fn again(id: EventId, line: &str) -> Self {
        Self { id, line: line.into() }
    }

    fn from_checked(id: EventId, line: Arc<str>) -> Result<Self, InvalidInput> {
        if line.len() > Self::MAX_BYTES {
            return Err(InvalidInput::new(format!(
                "event {id} has {} bytes, the limit is {}: {}",
                line.len(),
                Self::MAX_BYTES,
                beginning(&line)
            )));
        }
        Ok(Self { id, line })
    }

    /// The event's id.
    pub fn id(&self) -> &EventId {
        &self.id
    }

    /// The event's JSON, without a line break.
    pub fn line(&self) -> &str {
        &self.line
    }
}

impl EventId {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks `id`.
    ///
    /// # Errors
    ///
    /// Fails if `id` is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or contains a control
    /// character.
    pub fn new(id: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        let id = id.into();
        if id.is_empty() || id.len() > Self::MAX_BYTES || id.chars().any(char::is_control) {
            return Err(InvalidInput::new(format!(
                "event id {id:?} is out of range: 1 to {} bytes without control characters",
                Self::MAX_BYTES
            )));
        }
        Ok(Self(id))
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_text(self) -> Arc<str> {
        self.0
    }
}

impl FromStr for EventId {
    type Err = InvalidInput;

    fn from_str(id: &str) -> Result<Self, InvalidInput> {
        Self::new(id)
    }
}

impl Borrow<str> for EventId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A long line would hide the rest of a message.
pub(crate) fn beginning(line: &str) -> String {
    match line.char_indices().nth(LONGEST_EXCERPT) {
        Some((end, _)) => format!("{:?}…", line.split_at(end).0),
        None => format!("{line:?}"),
    }
}

/// In characters.
const LONGEST_EXCERPT: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_one_line_of_json_is_refused() {
        let refused =
            |line: &str| Event::from_line("a".parse().unwrap(), line).unwrap_err().to_string();

        assert_eq!(
            refused("{}\n{}"),
            r#"event a must be one line of JSON, but contains a line break: "{}\n{}""#
        );
        assert_eq!(
            refused("{'a': 1}"),
            r#"event a is not JSON, key must be a string at line 1 column 2: "{'a': 1}""#
        );
        let long = format!("\"{}\"", "ß".repeat(Event::MAX_BYTES / 2));
        assert_eq!(
            refused(&long),
            format!(
                "event a has 10485762 bytes, the limit is 10485760: \"\\\"{}\"…",
                "ß".repeat(59)
            )
        );
    }

    #[test]
    fn id_is_a_valid_partition_key() {
        assert!(EventId::new("").is_err());
        assert!(EventId::new("a\nb").is_err());
        assert!(EventId::new("x".repeat(257)).is_err());
        assert!(EventId::new("x".repeat(256)).is_ok());
    }
}
