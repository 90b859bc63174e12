//! Where events go that no record of the sink is large enough for.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{ServiceError, ServiceErrorKind};
use crate::export::buffer::{Appended, EventBuffer};
use crate::export::event::Event;

/// Takes events that fit into no record of the sink.
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync + 'static {
    /// Takes `event`, which is removed from the buffer then. It may come twice.
    ///
    /// # Errors
    ///
    /// Where it is not known to be kept: then it stays pending, and comes again.
    async fn bury(&self, event: &Event) -> Result<(), ServiceError>;
}

/// Keeps dead letters in a buffer of their own, to be looked at.
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
    async fn bury(&self, event: &Event) -> Result<(), ServiceError> {
        match self.0.append(std::slice::from_ref(event)).await? {
            Appended::Kept { .. } => Ok(()),
            Appended::Full | Appended::Stopped(_) => {
                let sentence = "their buffer has no room";
                Err(ServiceError::new("dead letters", ServiceErrorKind::Refused, sentence))
            }
        }
    }
}
