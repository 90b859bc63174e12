//! Where events go that the sink will never take.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;

use crate::buffer::{Appended, EventBuffer};
use crate::error::{ServiceError, ServiceErrorKind, sentence};
use crate::event::Event;

/// Takes events that the sink will never take.
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync + 'static {
    /// Takes `event`, which is removed from the buffer then, and hears why. It may come twice.
    ///
    /// # Errors
    ///
    /// Where it is not known to be kept: then it stays pending, and comes again.
    async fn bury(&self, event: &Event, why: &Unsendable) -> Result<(), ServiceError>;
}

/// Why an event will never be taken by the sink.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unsendable {
    /// It fits into no record.
    #[error("it has {bytes} bytes, a record takes {most} with what names it")]
    TooLarge {
        /// How long its line is, in bytes.
        bytes: usize,
        /// How many bytes a record of the sink takes, with a line break and what names it.
        most: usize,
    },
    /// The sink did not take it in so many exports in which it took others, the last time in a record
    /// of its own.
    #[error("it failed in {exports} exports that sent others")]
    Failed {
        /// In how many exports.
        exports: u32,
    },
    /// The sink refused requests that had nothing else in them, before and after it took others.
    #[error("it was refused")]
    Refused(#[source] ServiceError),
}

/// Keeps dead letters in a buffer of their own, to be looked at: each under its id, as an object
/// that has the event itself as its `event`, and the reason, a sentence, as its `why`. One that
/// would be too long with its reason is kept without.
#[derive(Debug, Clone)]
pub struct BufferedDeadLetters(Arc<dyn EventBuffer>);

impl BufferedDeadLetters {
    /// Keeps them in `buffer`, which should be nothing else's.
    pub fn new(buffer: Arc<dyn EventBuffer>) -> Self {
        Self(buffer)
    }
}

#[async_trait]
impl DeadLetters for BufferedDeadLetters {
    async fn bury(&self, event: &Event, why: &Unsendable) -> Result<(), ServiceError> {
        let why = Value::String(sentence(why));
        let line = format!("{{\"event\":{},\"why\":{why}}}", event.line());
        let letter = Event::from_line(event.id().clone(), line);
        let letter = letter.unwrap_or_else(|_too_long| event.clone());
        match self.0.append(&[letter]).await? {
            Appended::Kept { .. } => Ok(()),
            Appended::Full | Appended::Stopped(_) => {
                let sentence = "their buffer has no room";
                Err(ServiceError::new("dead letters", ServiceErrorKind::Refused, sentence))
            }
        }
    }
}
