//! Dead letters: events that the sink never takes.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;

use crate::buffer::{Appended, EventBuffer};
use crate::error::{ServiceError, ServiceErrorKind, sentence};
use crate::event::Event;

/// Receives the events that the sink never takes.
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync + 'static {
    /// Stores `event` and the reason. Afterwards, the exporter removes the event from its buffer.
    /// The same event may arrive twice.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown. The event stays pending, and the next export repeats this
    /// call.
    ///
    /// # Cancel safety
    ///
    /// After a dropped call, the event stays pending, and the next export repeats the call.
    async fn dead_letter(&self, event: &Event, why: &Unsendable) -> Result<(), ServiceError>;
}

/// Why the sink never takes an event.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unsendable {
    /// The event is larger than a record.
    #[error("it has {bytes} bytes, the limit for a record with its key is {most}")]
    TooLarge {
        /// The length of the event's line, in bytes.
        bytes: usize,
        /// The largest record of the sink in bytes, with the line break and the partition key.
        most: usize,
    },
    /// The sink did not take the event in this many exports that sent other events. The last
    /// attempt was in a record of its own.
    #[error("it failed in {exports} exports that sent other events")]
    Failed {
        /// The number of exports.
        exports: u32,
    },
    /// The sink refused two requests with only this event, but accepted other events between them.
    #[error("it was refused")]
    Refused(#[source] ServiceError),
}

impl Unsendable {
    /// The names of all reasons, to register them before the first event.
    pub const REASONS: &'static [&'static str] = &["too_large", "failed", "refused"];

    /// The name of the reason, for the label of a metric.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Failed { .. } => "failed",
            Self::Refused(_) => "refused",
        }
    }
}

/// Keeps dead letters in a separate buffer. Each entry has the event's id. The line of an entry is
/// an object with the event as `event`, and the reason, a sentence, as `why`. If the reason makes
/// the line too long, the line is the event alone.
#[derive(Debug, Clone)]
pub struct BufferedDeadLetters(Arc<dyn EventBuffer>);

impl BufferedDeadLetters {
    /// Keeps dead letters in `buffer`, which no other component should use.
    pub fn new(buffer: Arc<dyn EventBuffer>) -> Self {
        Self(buffer)
    }
}

#[async_trait]
impl DeadLetters for BufferedDeadLetters {
    async fn dead_letter(&self, event: &Event, why: &Unsendable) -> Result<(), ServiceError> {
        let why = Value::String(sentence(why));
        let line = format!("{{\"event\":{},\"why\":{why}}}", event.line());
        let letter = Event::from_line(event.id().clone(), line);
        let letter = letter.unwrap_or_else(|_too_long| event.clone());
        match self.0.append(&[letter]).await? {
            Appended::Kept { .. } => Ok(()),
            Appended::Full | Appended::Stopped(_) => {
                let sentence = "the dead-letter buffer is full";
                Err(ServiceError::new("dead letters", ServiceErrorKind::Refused, sentence))
            }
        }
    }
}
