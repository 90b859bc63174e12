//! Separates a child's messages from other text on its stdout.

use lease_kinesis::ShardId;
use lease_kinesis::extension::{LogLevel, LogThrottle};
use tracing::{debug, info, warn};

use crate::protocol::{FromChild, Generation, InvalidMessage, Line};

/// The child's code or its libraries may print other lines. The filter logs the first few of them.
pub(super) struct MessageFilter {
    shard: ShardId,
    ignored: LogThrottle,
    /// The generation that the child's messages have shown so far.
    pub(super) generation: Generation,
}

impl MessageFilter {
    pub(super) fn new(shard: ShardId) -> Self {
        Self { shard, ignored: LogThrottle::default(), generation: Generation::G2 }
    }

    /// `None` if the line is not a message.
    pub(super) fn message(&mut self, line: &Line<'_>) -> Option<FromChild> {
        let reason = match line {
            Line::Whole(text) | Line::Unterminated(text) => match self.decode(text) {
                Ok(message) => return Some(message),
                // A blank line precedes each message.
                Err(InvalidMessage::Blank) => return None,
                Err(reason) => format!("{reason}: {:?}", quoted(text)),
            },
            Line::TooLong(bytes) => format!("the line has {bytes} bytes"),
            Line::NotUtf8(bytes) => {
                format!("the line is not UTF-8: {:?}", quoted(&String::from_utf8_lossy(bytes)))
            }
            Line::End => return None,
        };
        let shard = &self.shard;
        let level = self.ignored.once_more();
        if level == LogLevel::Debug {
            debug!(%shard, reason, "line from child ignored, it is not a message");
        } else {
            warn!(%shard, reason, "line from child ignored, it is not a message");
        }
        if level == LogLevel::WarnThenRarely {
            warn!(%shard, "further ignored lines of this child are logged rarely");
        }
        None
    }

    /// In a checkpoint of the first generation, the field with the sequence number has another name.
    fn decode(&mut self, text: &str) -> Result<FromChild, InvalidMessage> {
        let decoded = FromChild::decode(text, self.generation);
        if self.generation > Generation::G0
            && decoded.is_err()
            && let Ok(message @ FromChild::Checkpoint(_)) = FromChild::decode(text, Generation::G0)
        {
            info!(shard = %self.shard, "child speaks the first generation of the protocol");
            self.generation = Generation::G0;
            return Ok(message);
        }
        decoded
    }
}

impl Drop for MessageFilter {
    fn drop(&mut self) {
        if let Some(lines) = self.ignored.total_if_throttled() {
            warn!(shard = %self.shard, lines, "total of ignored lines from child");
        }
    }
}

/// The child may have written a text of any length.
pub(super) fn quoted(text: &str) -> &str {
    text.char_indices().nth(MAX_QUOTED).map_or(text, |(end, _)| &text[..end])
}

/// The maximum length of a quoted text, in characters.
const MAX_QUOTED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_among_other_lines() {
        let mut filter = MessageFilter::new("shardId-0".parse().unwrap());
        for line in [
            Line::Whole(""),
            Line::Whole("Starting up..."),
            Line::Whole("{\"action\":\"bogus\"}"),
            Line::Whole("{\"action\":\"status\",\"responseFor\":\"initialize\",\"more\":1}"),
            Line::TooLong(1 << 30),
            Line::NotUtf8(b"\xff"),
        ] {
            assert_eq!(filter.message(&line), None, "{line:?}");
        }
        let again = (0..5).map(|_| filter.ignored.once_more()).collect::<Vec<_>>();
        let last = LogLevel::WarnThenRarely;
        assert_eq!(again.last(), Some(&last), "an empty line is part of the protocol");

        let status = filter.message(&Line::Whole(r#"{"action":"status","responseFor":"x"}"#));
        assert_eq!(status, Some(FromChild::Status { response_for: Some("x".into()) }));
    }

    #[test]
    fn checkpoint_field_name_reveals_the_first_generation() {
        let mut filter = MessageFilter::new("shardId-0".parse().unwrap());

        let message = filter.message(&Line::Whole(r#"{"action":"checkpoint","checkpoint":"7"}"#));

        let Some(FromChild::Checkpoint(request)) = message else { panic!("no checkpoint") };
        assert_eq!(request.sequence_number.as_deref(), Some("7"));
        assert_eq!(filter.generation, Generation::G0);
    }
}
