//! Events in a Redis stream.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use redis::Value;
use tracing::warn;

use crate::buffer::redis_words::{intake, stale, stopped, word};
use crate::buffer::{
    Appended, BufferState, Capacity, EventBuffer, Fenced, Intake, Overflow, Pending, Position,
    ReadLimit, StopCause, no_room_aside,
};
use crate::error::{ServiceError, ServiceErrorKind};
use crate::event::{Event, EventId, beginning};
use crate::redis::{RedisLink, key, script, unreadable};

/// Keeps events in a Redis stream.
///
/// `events:{NAME}:stream` has one entry per event, with the fields `id` and `line`.
/// `events:{NAME}:state` has the largest token, the intake and the number of dropped events.
/// `events:{NAME}:aside` is a stream of the events that were set aside. A read also moves entries
/// of other programs to this stream, and logs their text as a warning.
///
/// A full server (`maxmemory`, `noeviction`) refuses appends, but serves reads and removals.
///
/// The buffer is as durable as its server: `appendfsync always` loses no answered append, and
/// `everysec` may lose one second of appends. Each call is one script, and so one atomic step.
/// Positions are the ids that the server assigns, which grow even if its clock goes back.
#[derive(Debug, Clone)]
pub struct RedisBuffer {
    link: RedisLink,
    capacity: Capacity,
    /// The stream, the state, and the stream of events set aside.
    keys: [String; 3],
}

impl RedisBuffer {
    /// Opens the buffer `name`. All processes that share this buffer must use the same `capacity`.
    pub fn new(link: RedisLink, name: &str, capacity: Capacity) -> Self {
        let keys = ["stream", "state", "aside"].map(|part| key("events", name, part));
        Self { link, capacity, keys }
    }

    async fn run(
        &self,
        script: &redis::Script,
        arguments: &[&[u8]],
    ) -> Result<Value, ServiceError> {
        let [stream, state, aside] = &self.keys;
        self.link.run(SERVICE, script, &[stream, state, aside], arguments).await
    }

    /// Returns the number of events that existed.
    async fn run_on(
        &self,
        script: &redis::Script,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        let token = token.to_string();
        let positions: Vec<_> = positions.iter().map(ToString::to_string).collect();
        let mut arguments = vec![token.as_bytes()];
        arguments.extend(positions.iter().map(String::as_bytes));
        match self.run(script, &arguments).await? {
            Value::Int(count) => Ok(Fenced::Done(u64::try_from(count).unwrap_or(0))),
            other => stale(&other),
        }
    }
}

#[async_trait]
impl EventBuffer for RedisBuffer {
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError> {
        let (capacity, overflow) = (self.capacity.events.to_string(), self.capacity.overflow);
        let mut arguments: Vec<&[u8]> = vec![
            capacity.as_bytes(),
            match overflow {
                Overflow::Refuse => b"refuse",
                Overflow::DropOldest => b"drop",
                Overflow::Pause => b"pause",
            },
        ];
        for event in events {
            arguments.extend([event.id().as_str().as_bytes(), event.line().as_bytes()]);
        }
        let answer = self.run(&APPEND, &arguments).await?;
        match &answer {
            Value::Int(dropped) => {
                Ok(Appended::Kept { dropped: u64::try_from(*dropped).unwrap_or(0) })
            }
            Value::BulkString(text) if text == b"full" => Ok(Appended::Full),
            Value::BulkString(text) if text == b"paused" => {
                self.capacity.warn_of_pause();
                Ok(Appended::Stopped(StopCause::Emergency))
            }
            other => Ok(Appended::Stopped(stopped(other)?)),
        }
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        let (token_text, events) = (token.to_string(), most.events.to_string());
        let (bytes, longest) = (most.bytes.to_string(), Event::MAX_BYTES.to_string());
        let mut from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        loop {
            let arguments = [&token_text, &from, &events, &bytes, &longest].map(String::as_bytes);
            let entries = match self.run(&READ, &arguments).await? {
                Value::Array(entries) => entries,
                other => return stale(&other),
            };
            let (mut pending, mut foreign) = (Vec::new(), Vec::new());
            let last = entries.last().and_then(position);
            for entry in entries {
                let position =
                    position(&entry).ok_or_else(|| unreadable(SERVICE, "an invalid position"))?;
                if let Some(event) = event(&entry) {
                    pending.push(Pending::new(position, event));
                    continue;
                }
                let text = beginning(&format!("{entry:?}"));
                warn!(%position, text, "stream entry is not an event, set aside");
                foreign.push(position);
            }
            if !foreign.is_empty() {
                match self.set_aside(token, &foreign).await {
                    Ok(Fenced::Done(_)) => (),
                    Ok(Fenced::Stale { largest }) => return Ok(Fenced::Stale { largest }),
                    // The entry stays in the stream. The events are still read.
                    Err(error) if error.kind() == ServiceErrorKind::Refused => {
                        warn!(
                            error = &error as &dyn std::error::Error,
                            "foreign entry not set aside"
                        );
                    }
                    Err(error) => return Err(error),
                }
            }
            match last {
                // An empty result would mean that no event is left. So the read continues after the
                // entries that were set aside.
                Some(last) if pending.is_empty() => from = format!("({last}"),
                _ => return Ok(Fenced::Done(pending)),
            }
        }
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.run_on(&REMOVE, token, positions).await
    }

    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        let (token, capacity) = (token.to_string(), self.capacity.events.to_string());
        let positions: Vec<_> = positions.iter().map(ToString::to_string).collect();
        let mut arguments = vec![token.as_bytes(), capacity.as_bytes()];
        arguments.extend(positions.iter().map(String::as_bytes));
        match self.run(&SET_ASIDE, &arguments).await? {
            Value::Int(count) => {
                let moved = u64::try_from(count);
                Ok(Fenced::Done(moved.map_err(|_negative| no_room_aside(self.capacity.events))?))
            }
            other => stale(&other),
        }
    }

    async fn clear_aside(&self) -> Result<u64, ServiceError> {
        match self.run(&CLEAR_ASIDE, &[]).await? {
            Value::Int(count) => Ok(u64::try_from(count).unwrap_or(0)),
            _ => Err(unreadable(SERVICE, "an unknown answer")),
        }
    }

    async fn pending(&self) -> Result<u64, ServiceError> {
        let [stream, _, _] = &self.keys;
        self.link.command(SERVICE, redis::cmd("XLEN").arg(stream)).await
    }

    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError> {
        match self.run(&OLDEST, &[]).await? {
            Value::Nil => Ok(None),
            Value::Int(millis) => Ok(u64::try_from(millis).ok().map(Duration::from_millis)),
            _ => Err(unreadable(SERVICE, "an unknown answer")),
        }
    }

    async fn state(&self) -> Result<BufferState, ServiceError> {
        let [_, state, aside] = &self.keys;
        let mut both = redis::pipe();
        both.cmd("HMGET").arg(state).arg("intake").arg("dropped").cmd("XLEN").arg(aside);
        let ((found, dropped), set_aside): ((Value, Option<u64>), u64) =
            self.link.pipeline(SERVICE, &both).await?;
        let intake = intake(&found, AT_FIRST)?;
        Ok(BufferState { intake, dropped: dropped.unwrap_or(0), set_aside })
    }

    async fn set_intake(&self, to: Intake) -> Result<Intake, ServiceError> {
        let words = [word(to).as_bytes(), word(AT_FIRST).as_bytes()];
        intake(&self.run(&INTAKE, &words).await?, AT_FIRST)
    }

    async fn resume_intake(&self) -> Result<bool, ServiceError> {
        Ok(self.run(&RESUME, &[]).await? == Value::Int(1))
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        match self.run(&CLEAR, &[]).await? {
            Value::Int(count) => Ok(u64::try_from(count).ok()),
            _ => Ok(None),
        }
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }
}

/// The position and the fields.
fn parts(entry: &Value) -> Option<(&[u8], &[Value])> {
    match entry {
        Value::Array(parts) => match parts.as_slice() {
            [Value::BulkString(position), Value::Array(fields)] => Some((position, fields)),
            _ => None,
        },
        _ => None,
    }
}

fn position(entry: &Value) -> Option<Position> {
    let (position, _) = parts(entry)?;
    let (high, low) = std::str::from_utf8(position).ok()?.split_once('-')?;
    Some(Position::new(high.parse().ok()?, low.parse().ok()?))
}

/// Returns `None` for entries of other programs.
fn event(entry: &Value) -> Option<Event> {
    let (_, fields) = parts(entry)?;
    let text = |place: usize| match fields.get(place) {
        Some(Value::BulkString(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    if (text(0)?, text(2)?) != ("id", "line") {
        return None;
    }
    Event::from_line(EventId::new(text(1)?).ok()?, text(3)?).ok()
}

script!(APPEND "scripts/gate.lua" "scripts/append.lua");
script!(READ "scripts/fence.lua" "scripts/read.lua");
script!(REMOVE "scripts/fence.lua" "scripts/remove.lua");
script!(SET_ASIDE "scripts/fence.lua" "scripts/set_aside.lua");
script!(OLDEST "scripts/oldest.lua");
script!(INTAKE "scripts/intake.lua");
script!(RESUME "scripts/resume.lua");
script!(CLEAR "scripts/clear.lua");
script!(CLEAR_ASIDE "scripts/clear_aside.lua");

const SERVICE: &str = "event buffer";

/// A buffer is bounded, so a buffer may take events before an exporter runs.
const AT_FIRST: Intake = Intake::Open;
