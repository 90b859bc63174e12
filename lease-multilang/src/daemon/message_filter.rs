//! What comes from a child and is no message.

use tracing::{debug, info, warn};

use crate::multilang::{FromChild, Generation, Line, NotAMessage};
use crate::repeats::{Repeats, Telling};
use crate::shard::ShardId;

/// Tells messages from what a child's code, or a library of its, has printed: the first lines of
/// that are shown in the log, the others counted.
pub(super) struct Noise {
    shard: ShardId,
    ignored: Repeats,
    /// What the child has shown that it speaks.
    pub(super) generation: Generation,
}

impl Noise {
    pub(super) fn new(shard: ShardId) -> Self {
        Self { shard, ignored: Repeats::default(), generation: Generation::G2 }
    }

    /// The message on `line`, if there is one.
    pub(super) fn message(&mut self, line: &Line<'_>) -> Option<FromChild> {
        let reason = match line {
            Line::Whole(text) | Line::Unended(text) => match self.decoded(text) {
                Ok(message) => return Some(message),
                // Each message has one before it.
                Err(NotAMessage::Blank) => return None,
                Err(reason) => format!("{reason}: {:?}", cut(text)),
            },
            Line::TooLong(bytes) => format!("the line has {bytes} bytes"),
            Line::NotUtf8(bytes) => {
                format!("the line is not UTF-8: {:?}", cut(&String::from_utf8_lossy(bytes)))
            }
            Line::End => return None,
        };
        let shard = &self.shard;
        let telling = self.ignored.once_more();
        if telling == Telling::Quietly {
            debug!(%shard, reason, "child wrote what is no message, it is ignored");
        } else {
            warn!(%shard, reason, "child wrote what is no message, it is ignored");
        }
        if telling == Telling::AloudThenSeldom {
            warn!(%shard, "further lines of that child that are no messages are told seldom");
        }
        None
    }

    /// In the words of this generation; or in those of the first, whose checkpoints have one field
    /// that is called otherwise.
    fn decoded(&mut self, text: &str) -> Result<FromChild, NotAMessage> {
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

impl Drop for Noise {
    fn drop(&mut self) {
        if let Some(lines) = self.ignored.counted() {
            warn!(shard = %self.shard, lines, "child wrote what was no message");
        }
    }
}

/// The beginning of `text`, for the log: a child may have written it.
pub(super) fn cut(text: &str) -> &str {
    text.char_indices().nth(MOST_QUOTED).map_or(text, |(end, _)| &text[..end])
}

/// Characters.
const MOST_QUOTED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_among_whatever_is_printed() {
        let mut noise = Noise::new("shardId-0".parse().unwrap());
        for line in [
            Line::Whole(""),
            Line::Whole("Starting up..."),
            Line::Whole("{\"action\":\"bogus\"}"),
            Line::Whole("{\"action\":\"status\",\"responseFor\":\"initialize\",\"more\":1}"),
            Line::TooLong(1 << 30),
            Line::NotUtf8(b"\xff"),
        ] {
            assert_eq!(noise.message(&line), None, "{line:?}");
        }
        let again = (0..5).map(|_| noise.ignored.once_more()).collect::<Vec<_>>();
        let last = Telling::AloudThenSeldom;
        assert_eq!(again.last(), Some(&last), "an empty line is part of the protocol");

        let status = noise.message(&Line::Whole(r#"{"action":"status","responseFor":"x"}"#));
        assert_eq!(status, Some(FromChild::Status { response_for: Some("x".into()) }));
    }

    #[test]
    fn a_child_of_the_first_generation_is_known_by_its_checkpoint() {
        let mut noise = Noise::new("shardId-0".parse().unwrap());

        let asked = noise.message(&Line::Whole(r#"{"action":"checkpoint","checkpoint":"7"}"#));

        let Some(FromChild::Checkpoint(asked)) = asked else { panic!("no checkpoint") };
        assert_eq!(asked.sequence_number.as_deref(), Some("7"));
        assert_eq!(noise.generation, Generation::G0);
    }
}
