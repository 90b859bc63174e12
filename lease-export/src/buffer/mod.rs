//! Events that wait to be sent: durable, in order, bounded.

use std::fmt;
use std::sync::Arc;

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

/// Keeps events until they were sent.
///
/// Whoever reads and removes does so under a lease, and shows its token: the buffer keeps the
/// largest that it has seen, and refuses smaller ones, so a former holder removes nothing that its
/// successor has not sent. Whoever appends holds nothing.
///
/// # To ensure correctness
///
/// The check of the token and what it guards are one atomic step. An append is all of its events or
/// none, and lasts once it was answered. What is removed is what was named, and nothing else.
/// Positions grow in the order of appends, and are never used twice.
#[async_trait]
pub trait EventBuffer: fmt::Debug + Send + Sync + 'static {
    /// Appends `events`, in order, as far as the [`Capacity`] allows: all of them, or none.
    ///
    /// Where the intake was stopped for lack of room and nothing is pending any more, it is opened
    /// first.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown. Append the same events again: some may be in it twice then,
    /// each time under the same id.
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError>;

    /// Reads the oldest events after `after`, or of all: up to `most`, and at least one, if any is
    /// there. Leaves them where they are. From now on, smaller tokens are refused.
    ///
    /// # Errors
    ///
    /// Where the buffer could not say.
    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: Most,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError>;

    /// Removes the events at `positions`, and nothing else; says how many were still there.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown. Remove the same again: that is harmless.
    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Moves the events at `positions` to where nobody reads them, since nobody will ever take them;
    /// says how many were still there. They are pending no more, and kept until they are
    /// [cleared](Self::clear_aside). As many are kept as the [`Capacity`] has events.
    ///
    /// # Errors
    ///
    /// If there is no room for them: then all of them stay pending. Or if the outcome is unknown: set the
    /// same aside again, that is harmless.
    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Removes what was set aside, and says how many events that were.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn clear_aside(&self) -> Result<u64, ServiceError>;

    /// How many events are pending: those that were set aside are not.
    ///
    /// # Errors
    ///
    /// Where the buffer could not say.
    async fn pending(&self) -> Result<u64, ServiceError>;

    /// Says whether events are taken in, and how many were dropped so far.
    ///
    /// # Errors
    ///
    /// Where the buffer could not say.
    async fn state(&self) -> Result<BufferState, ServiceError>;

    /// Opens or stops the intake. A stop for lack of room leaves one that is stopped as it is: an
    /// operator's stop is never turned into one that ends by itself. Says how it was before.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError>;

    /// Opens the intake if it was stopped for lack of room; leaves an operator's stop as it is. Says
    /// whether it was opened. An exporter calls it if no more than a tenth of the capacity is pending
    /// and it has tried to send all of that.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn resume_intake(&self) -> Result<bool, ServiceError>;

    /// Removes everything, if the intake is stopped; says how many there were, and `None` where it
    /// is open.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn clear(&self) -> Result<Option<u64>, ServiceError>;

    /// How many events it keeps, and what happens then.
    fn capacity(&self) -> Capacity;
}

/// An event in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    position: Position,
    event: Event,
}

/// Where an event is in its buffer. Later events have larger positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    high: u64,
    low: u64,
}

/// How much is read at once, so that memory is bounded: whichever is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Most {
    /// Events.
    pub events: usize,
    /// Bytes of their lines; may be exceeded by the last of them.
    pub bytes: usize,
}

/// What became of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "events that were not kept are lost unless you keep them"]
#[expect(clippy::exhaustive_enums, reason = "they were kept, or there was no room, or no intake")]
pub enum Appended {
    /// All are kept. To make room, the oldest `dropped` events were removed and counted.
    Kept {
        /// How many were removed; 0 unless the buffer [drops](Overflow::DropOldest) the oldest.
        dropped: u64,
    },
    /// There is no room: none is kept.
    Full,
    /// The intake is stopped: none is kept.
    Stopped(StopCause),
}

/// Whether events are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a door is open or not")]
pub enum Intake {
    /// They are.
    Open,
    /// They are not.
    Stopped(StopCause),
}

/// Why events are not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "who stopped it decides who opens it: one or the other"
)]
pub enum StopCause {
    /// There was no room. Opens by itself once nothing is pending, or once only a few events are
    /// left that the sink did not take: see
    /// [`resume_intake`](EventBuffer::resume_intake).
    Emergency,
    /// An operator stopped it. Nothing but an operator opens it.
    Operator,
}

/// How a buffer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferState {
    /// Whether events are taken in.
    pub intake: Intake,
    /// How many events were dropped to make room, ever.
    pub dropped: u64,
    /// How many events were set aside, and are still kept.
    pub set_aside: u64,
}

/// What came of a call under a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a former holder has to stop"]
#[expect(clippy::exhaustive_enums, reason = "a token stands or it does not")]
pub enum Fenced<T> {
    /// The token was the largest seen.
    Done(T),
    /// A larger token was seen: nothing was done.
    Stale {
        /// The largest token seen.
        largest: FencingToken,
    },
}

/// How many events are kept, and what happens to those that come then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub(crate) events: u64,
    pub(crate) overflow: Overflow,
}

/// What happens to events that come where there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "new ones, old ones, or none: there is no fourth")]
pub enum Overflow {
    /// They are refused, one append at a time.
    Refuse,
    /// The oldest are removed, and counted.
    DropOldest,
    /// They are refused, and so are all others until nothing is pending: an emergency stop, which
    /// ends by itself.
    Pause,
}

impl Capacity {
    /// Keeps up to `events` events: 1 or more.
    ///
    /// # Errors
    ///
    /// Where `events` is 0.
    pub fn new(events: u64, overflow: Overflow) -> Result<Self, InvalidInput> {
        if events == 0 {
            return Err(InvalidInput::new("a capacity of 0 events keeps nothing: at least 1"));
        }
        Ok(Self { events, overflow })
    }

    /// Logs that the intake was stopped just now.
    pub(crate) fn warn_of_pause(self) {
        warn!(
            capacity = self.events,
            "event buffer takes nothing in until it is drained: it is full"
        );
    }

    /// How many events are kept.
    pub fn events(self) -> u64 {
        self.events
    }
}

impl Default for Capacity {
    /// 600,000 events, then pauses: what the earlier exporter stood, for hours of a sink's outage.
    fn default() -> Self {
        Self { events: 600_000, overflow: Overflow::Pause }
    }
}

impl Pending {
    /// `event` at `position`: for those who write buffers.
    pub fn new(position: Position, event: Event) -> Self {
        Self { position, event }
    }

    /// Where it is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// What it is.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

impl Position {
    /// A position, ordered by `high` first.
    pub fn new(high: u64, low: u64) -> Self {
        Self { high, low }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.high, self.low)
    }
}

impl Most {
    /// Up to `events` events, at least 1, of about `bytes` bytes.
    pub fn new(events: usize, bytes: usize) -> Self {
        Self { events: events.max(1), bytes }
    }
}

/// Why events are not set aside.
pub(crate) fn no_room_aside(capacity: u64) -> ServiceError {
    let sentence = format!(
        "it keeps no more than {capacity} events that are set aside: look at them, and delete them with \
         Operator::delete_aside"
    );
    ServiceError::new("event buffer", ServiceErrorKind::Refused, sentence)
}

// A forwarded trait must not fall back to a default by accident.
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
        most: Most,
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
