//! Event buffers: durable, ordered, bounded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{FencingToken, InvalidInput};
use tracing::warn;

use crate::error::{ServiceError, ServiceErrorKind};
use crate::event::Event;

pub(crate) mod gate;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
pub(crate) mod redis_words;

pub use memory::MemoryBuffer;
#[cfg(feature = "redis")]
pub use redis::RedisBuffer;

/// Keeps events until the sink has taken them.
///
/// An exporter reads and removes events under a lease, and passes the lease's token. The buffer
/// refuses tokens smaller than the largest token seen. So a former holder can remove no events after its
/// successor has read the buffer. Producers append without a lease.
///
/// # To ensure correctness
///
/// The token check and the guarded action are one atomic step. An append keeps all of its events or
/// none, and is durable once answered. A removal removes exactly the named events. Positions grow
/// in the order of appends, and are never reused.
///
/// # Cancel safety
///
/// The buffer may still apply a dropped call completely, as after an error.
#[async_trait]
pub trait EventBuffer: fmt::Debug + Send + Sync + 'static {
    /// Appends `events`, in order, within the [`Capacity`]: all of them, or none.
    ///
    /// If the intake was stopped for lack of room and no event is pending, the buffer first opens
    /// the intake.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown. Append the same events again: the buffer may then have some
    /// events twice, under the same id.
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError>;

    /// Reads the oldest events after `after`, or from the start: up to `most`, and at least one
    /// event if any exists. The events stay in the buffer. Afterwards, the buffer refuses smaller
    /// tokens.
    ///
    /// # Errors
    ///
    /// Fails if the buffer did not answer.
    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError>;

    /// Removes exactly the events at `positions`. Returns the number of events that existed.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown. Removing the same events again is harmless.
    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Sets aside the events at `positions`, since the sink never takes them. Events set aside are
    /// not pending. The buffer keeps them until [`clear_aside`](Self::clear_aside), up to the
    /// number of events of its [`Capacity`]. Returns the number of events that existed.
    ///
    /// # Errors
    ///
    /// Fails if the buffer has no room: all of the events then stay pending. After any other error,
    /// the outcome is unknown. Setting the same events aside again is harmless.
    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Removes the events that were set aside, and returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn clear_aside(&self) -> Result<u64, ServiceError>;

    /// Returns the number of pending events, excluding events set aside.
    ///
    /// # Errors
    ///
    /// Fails if the buffer did not answer.
    async fn pending(&self) -> Result<u64, ServiceError>;

    /// Returns the time since the oldest pending event was appended. Returns `None` if no event is
    /// pending.
    ///
    /// # Errors
    ///
    /// Fails if the buffer did not answer.
    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError>;

    /// Returns the state of the intake, and the numbers of dropped events and of events set aside.
    ///
    /// # Errors
    ///
    /// Fails if the buffer did not answer.
    async fn state(&self) -> Result<BufferState, ServiceError>;

    /// Opens or stops the intake, and returns its previous state. A stop for lack of room does not
    /// replace an operator's stop.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError>;

    /// Opens the intake if it was stopped for lack of room. Returns whether the intake was opened.
    /// The exporter calls this after an attempt to send all pending events, if at most a tenth of
    /// the capacity is still pending.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn resume_intake(&self) -> Result<bool, ServiceError>;

    /// Removes all pending events and returns their number. Returns `None` if the intake is open.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn clear(&self) -> Result<Option<u64>, ServiceError>;

    /// The largest number of events, and the reaction to appends that exceed it.
    fn capacity(&self) -> Capacity;
}

/// An event at its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    position: Position,
    event: Event,
}

/// The position of an event in its buffer. Later events have larger positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    high: u64,
    low: u64,
}

/// Limits how much one read returns, so that memory is bounded. The first limit that a read reaches
/// ends the read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadLimit {
    /// The largest number of events.
    pub events: usize,
    /// The largest sum of line lengths, in bytes. The last event may exceed this sum.
    pub bytes: usize,
}

/// The result of [`EventBuffer::append`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "events that were not kept are lost unless you keep them"]
#[expect(clippy::exhaustive_enums, reason = "an append is kept, or refused for one of two reasons")]
pub enum Appended {
    /// The buffer keeps all events.
    Kept {
        /// The number of oldest events that the buffer removed to make room: 0 unless the buffer
        /// [drops](Overflow::DropOldest) the oldest.
        dropped: u64,
    },
    /// The buffer has no room, and keeps none of the events.
    Full,
    /// The intake is stopped, and the buffer keeps none of the events.
    Stopped(StopCause),
}

/// Whether a buffer or bucket store takes new data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an intake is open or stopped")]
pub enum Intake {
    /// The intake is open.
    Open,
    /// The intake is stopped.
    Stopped(StopCause),
}

/// Why an intake is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the buffer stops and opens it, or an operator does")]
pub enum StopCause {
    /// The store had no room. The intake opens when no event is pending. An export that has tried
    /// all events also opens the intake if few events are left: see
    /// [`resume_intake`](EventBuffer::resume_intake).
    Emergency,
    /// An operator stopped the intake. Only an operator opens the intake.
    Operator,
}

/// The state of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferState {
    /// Whether the buffer takes events.
    pub intake: Intake,
    /// The number of events that were dropped to make room, since the buffer was created.
    pub dropped: u64,
    /// The number of events that are set aside now.
    pub set_aside: u64,
}

/// The result of a call under a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a former holder has to stop"]
#[expect(clippy::exhaustive_enums, reason = "a token is current or stale")]
pub enum Fenced<T> {
    /// The store applied the call.
    Done(T),
    /// The store refused the call, since a larger token was seen.
    Stale {
        /// The largest token seen.
        largest: FencingToken,
    },
}

/// The largest number of events, and the reaction to appends that exceed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub(crate) events: u64,
    pub(crate) overflow: Overflow,
}

/// The reaction of a full buffer to an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a full buffer refuses, drops or pauses")]
pub enum Overflow {
    /// Refuses this append.
    Refuse,
    /// Removes and counts the oldest events.
    DropOldest,
    /// Stops the intake until nothing is pending. This append and all others are refused.
    Pause,
}

impl Capacity {
    /// Keeps up to `events` events, 1 or more.
    ///
    /// # Errors
    ///
    /// Fails if `events` is 0.
    pub fn new(events: u64, overflow: Overflow) -> Result<Self, InvalidInput> {
        if events == 0 {
            return Err(InvalidInput::new("a capacity of 0 events is out of range: at least 1"));
        }
        Ok(Self { events, overflow })
    }

    pub(crate) fn warn_of_pause(self) {
        warn!(capacity = self.events, "event buffer intake stopped until drained: buffer full");
    }

    /// The largest number of events.
    pub fn events(self) -> u64 {
        self.events
    }
}

impl Default for Capacity {
    /// Keeps 600,000 events, then [pauses](Overflow::Pause): enough for hours of a sink's outage.
    fn default() -> Self {
        Self { events: 600_000, overflow: Overflow::Pause }
    }
}

impl Pending {
    /// Creates `event` at `position`. For implementers of [`EventBuffer`].
    pub fn new(position: Position, event: Event) -> Self {
        Self { position, event }
    }

    /// The event's position.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

impl Position {
    /// Creates a position. Positions are ordered by `high` first.
    pub fn new(high: u64, low: u64) -> Self {
        Self { high, low }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.high, self.low)
    }
}

impl ReadLimit {
    /// Allows up to `events` events, at least 1, with about `bytes` bytes in total.
    pub fn new(events: usize, bytes: usize) -> Self {
        Self { events: events.max(1), bytes }
    }
}

pub(crate) fn no_room_aside(capacity: u64) -> ServiceError {
    let sentence = format!(
        "{capacity} events are set aside already, which is the limit: inspect and delete them with \
         Operator::delete_aside"
    );
    ServiceError::new("event buffer", ServiceErrorKind::Refused, sentence)
}

// `Arc` forwards every method: a default method must not replace the buffer's own method.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<T: EventBuffer + ?Sized> EventBuffer for Arc<T> {
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError> {
        (**self).append(events).await
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        (**self).read(token, after, most).await
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        (**self).remove(token, positions).await
    }

    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        (**self).set_aside(token, positions).await
    }

    async fn clear_aside(&self) -> Result<u64, ServiceError> {
        (**self).clear_aside().await
    }

    async fn pending(&self) -> Result<u64, ServiceError> {
        (**self).pending().await
    }

    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError> {
        (**self).oldest_age().await
    }

    async fn state(&self) -> Result<BufferState, ServiceError> {
        (**self).state().await
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        (**self).set_intake(intake).await
    }

    async fn resume_intake(&self) -> Result<bool, ServiceError> {
        (**self).resume_intake().await
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        (**self).clear().await
    }

    fn capacity(&self) -> Capacity {
        (**self).capacity()
    }
}
