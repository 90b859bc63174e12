//! Events in memory, for tests and as the reference for other buffers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_core::store::{BootClock, Clock, Moment};
use parking_lot::{Mutex, MutexGuard};

use crate::buffer::gate::Gate;
use crate::buffer::{
    Appended, BufferState, Capacity, EventBuffer, Fenced, Intake, Overflow, Pending, Position,
    ReadLimit, StopCause, no_room_aside,
};
use crate::error::ServiceError;
use crate::event::Event;

/// Keeps events in memory, for one process. Clones share the events.
#[derive(Debug, Clone, Default)]
pub struct MemoryBuffer {
    capacity: Capacity,
    clock: BootClock,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// Each event, with the time of its append.
    events: BTreeMap<Position, (Moment, Event)>,
    aside: Vec<Event>,
    last: u64,
    gate: Gate,
    dropped: u64,
}

impl Default for Kept {
    fn default() -> Self {
        let (events, aside, gate) = (BTreeMap::new(), Vec::new(), Gate::new(Intake::Open));
        Self { events, aside, last: 0, gate, dropped: 0 }
    }
}

impl MemoryBuffer {
    /// An empty buffer.
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, clock: BootClock::new(), kept: Arc::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

impl Kept {
    /// Runs `guarded` unless a larger token was seen.
    fn fenced<T>(
        &mut self,
        token: FencingToken,
        guarded: impl FnOnce(&mut Self) -> T,
    ) -> Fenced<T> {
        match self.gate.admits(token) {
            Fenced::Done(()) => Fenced::Done(guarded(self)),
            Fenced::Stale { largest } => Fenced::Stale { largest },
        }
    }

    fn len(&self) -> u64 {
        self.events.len() as u64
    }
}

#[async_trait]
impl EventBuffer for MemoryBuffer {
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError> {
        let kept = &mut *self.kept();
        if let Some(cause) = kept.gate.stopped(kept.events.is_empty()) {
            return Ok(Appended::Stopped(cause));
        }
        let excess = (kept.len() + events.len() as u64).saturating_sub(self.capacity.events);
        let mut dropped = 0;
        if excess > 0 {
            match self.capacity.overflow {
                Overflow::Refuse => return Ok(Appended::Full),
                Overflow::Pause => {
                    kept.gate.set(Intake::Stopped(StopCause::Emergency));
                    self.capacity.warn_of_pause();
                    return Ok(Appended::Stopped(StopCause::Emergency));
                }
                // An append that is larger than the capacity would drop its own events.
                Overflow::DropOldest if events.len() as u64 > self.capacity.events => {
                    return Ok(Appended::Full);
                }
                Overflow::DropOldest => {
                    while dropped < excess && kept.events.pop_first().is_some() {
                        dropped += 1;
                    }
                    kept.dropped += dropped;
                }
            }
        }
        let now = self.clock.now();
        for event in events {
            kept.last += 1;
            kept.events.insert(Position::new(0, kept.last), (now, event.clone()));
        }
        Ok(Appended::Kept { dropped })
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        Ok(self.kept().fenced(token, |kept| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mut bytes = 0;
            kept.events
                .range((from, Bound::Unbounded))
                .take(most.events)
                .take_while(|(_, (_, event))| {
                    let goes_on = bytes == 0 || bytes < most.bytes;
                    bytes += event.line().len();
                    goes_on
                })
                .map(|(position, (_, event))| Pending::new(*position, event.clone()))
                .collect()
        }))
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        Ok(self.kept().fenced(token, |kept| {
            let there = positions.iter().filter(|position| kept.events.remove(position).is_some());
            there.count() as u64
        }))
    }

    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        let capacity = self.capacity.events;
        let moved = self.kept().fenced(token, |kept| {
            let there = positions.iter().filter(|position| kept.events.contains_key(position));
            if kept.aside.len() as u64 + there.count() as u64 > capacity {
                return None;
            }
            let events = positions.iter().filter_map(|position| kept.events.remove(position));
            let before = kept.aside.len();
            kept.aside.extend(events.map(|(_, event)| event));
            Some((kept.aside.len() - before) as u64)
        });
        Ok(match moved {
            Fenced::Done(moved) => Fenced::Done(moved.ok_or_else(|| no_room_aside(capacity))?),
            Fenced::Stale { largest } => Fenced::Stale { largest },
        })
    }

    async fn clear_aside(&self) -> Result<u64, ServiceError> {
        Ok(std::mem::take(&mut self.kept().aside).len() as u64)
    }

    async fn pending(&self) -> Result<u64, ServiceError> {
        Ok(self.kept().len())
    }

    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError> {
        let now = self.clock.now();
        Ok(self.kept().events.values().next().map(|(appended, _)| now.since(*appended)))
    }

    async fn state(&self) -> Result<BufferState, ServiceError> {
        let kept = self.kept();
        let (intake, set_aside) = (kept.gate.intake(), kept.aside.len() as u64);
        Ok(BufferState { intake, dropped: kept.dropped, set_aside })
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        Ok(self.kept().gate.set(intake))
    }

    async fn resume_intake(&self) -> Result<bool, ServiceError> {
        Ok(self.kept().gate.resume())
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        let kept = &mut *self.kept();
        let is_stopped = kept.gate.intake() != Intake::Open;
        Ok(is_stopped.then(|| std::mem::take(&mut kept.events).len() as u64))
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }
}
