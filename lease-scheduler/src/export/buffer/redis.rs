//! Events in a stream of Redis.

use async_trait::async_trait;
use lease_core::FencingToken;
use redis::Value;

use crate::error::ServiceError;
use crate::export::buffer::redis_words::{intake, stale, word};
use crate::export::buffer::{
    Appended, BufferState, Capacity, EventBuffer, Fenced, Intake, Most, Overflow, Pending, Position,
};
use crate::export::event::{Event, EventId};
use crate::redis::{RedisLink, key, script, unreadable};

/// Keeps events in a stream of Redis, `events:{NAME}:stream`, each as an entry with its `id` and its
/// `line`; beside it, in `events:{NAME}:state`, the largest token, the intake and what was dropped.
///
/// As durable as its server is: with `appendfsync always` nothing that was answered is lost, with
/// `everysec` a second may be. Every call is one script, and so one atomic step. Positions are the
/// ids that the server gives to entries: they grow, also where its clock goes back.
#[derive(Debug, Clone)]
pub struct RedisBuffer {
    link: RedisLink,
    capacity: Capacity,
    stream: String,
    state: String,
}

impl RedisBuffer {
    /// The buffer `name`. Who shares it says the same `capacity`.
    pub fn new(link: RedisLink, name: &str, capacity: Capacity) -> Self {
        let (stream, state) = (key("events", name, "stream"), key("events", name, "state"));
        Self { link, capacity, stream, state }
    }

    async fn run(
        &self,
        script: &redis::Script,
        arguments: &[&[u8]],
    ) -> Result<Value, ServiceError> {
        self.link.run(SERVICE, script, &[&self.stream, &self.state], arguments).await
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
            other => match intake(other) {
                Some(Intake::Stopped(cause)) => Ok(Appended::Stopped(cause)),
                _ => Err(unreadable(SERVICE, "an answer that is not known")),
            },
        }
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: Most,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        let after = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let (token, events) = (token.to_string(), most.events.to_string());
        let bytes = most.bytes.to_string();
        let arguments: [&[u8]; 4] =
            [token.as_bytes(), after.as_bytes(), events.as_bytes(), bytes.as_bytes()];
        match self.run(&READ, &arguments).await? {
            Value::Array(entries) => {
                let pending: Option<Vec<_>> = entries.into_iter().map(entry).collect();
                let pending = pending.ok_or_else(|| unreadable(SERVICE, "what is no event"))?;
                Ok(Fenced::Done(pending))
            }
            other => stale(&other),
        }
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        let token = token.to_string();
        let positions: Vec<_> = positions.iter().map(ToString::to_string).collect();
        let mut arguments = vec![token.as_bytes()];
        arguments.extend(positions.iter().map(String::as_bytes));
        match self.run(&REMOVE, &arguments).await? {
            Value::Int(removed) => Ok(Fenced::Done(u64::try_from(removed).unwrap_or(0))),
            other => stale(&other),
        }
    }

    async fn pending(&self) -> Result<u64, ServiceError> {
        self.link.command(SERVICE, redis::cmd("XLEN").arg(&self.stream)).await
    }

    async fn state(&self) -> Result<BufferState, ServiceError> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.state).arg("intake").arg("dropped");
        let (found, dropped): (Value, Option<u64>) = self.link.command(SERVICE, &command).await?;
        let intake = intake(&found).ok_or_else(|| unreadable(SERVICE, "an intake not known"))?;
        Ok(BufferState { intake, dropped: dropped.unwrap_or(0) })
    }

    async fn set_intake(&self, to: Intake) -> Result<Intake, ServiceError> {
        let before = self.run(&INTAKE, &[word(to).as_bytes()]).await?;
        intake(&before).ok_or_else(|| unreadable(SERVICE, "an intake not known"))
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        match self.run(&CLEAR, &[]).await? {
            Value::Int(count) => Ok(u64::try_from(count).ok()),
            _ => Ok(None),
        }
    }
}

fn entry(value: Value) -> Option<Pending> {
    let Value::Array(mut parts) = value else { return None };
    let Value::Array(fields) = parts.pop()? else { return None };
    let Value::BulkString(position) = parts.pop()? else { return None };
    let (high, low) = std::str::from_utf8(&position).ok()?.split_once('-')?;
    let position = Position::new(high.parse().ok()?, low.parse().ok()?);
    let mut texts = fields.into_iter().map(|field| match field {
        Value::BulkString(text) => String::from_utf8(text).ok(),
        _ => None,
    });
    let (id, line) = (texts.nth(1)??, texts.nth(1)??);
    let event = Event::from_kept(EventId::new(id).ok()?, line)?;
    Some(Pending::new(position, event))
}

script!(APPEND "scripts/append.lua");
script!(READ "scripts/read.lua");
script!(REMOVE "scripts/remove.lua");
script!(INTAKE "scripts/intake.lua");
script!(CLEAR "scripts/clear.lua");

const SERVICE: &str = "event buffer";
