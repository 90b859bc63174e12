//! How tokens and intakes are written in Redis: by buffers and buckets alike.

use lease_core::FencingToken;
use redis::Value;

use crate::error::ServiceError;
use crate::export::buffer::{Fenced, Intake, StopCause};
use crate::redis::unreadable;

/// How an intake is written; an open one is not there.
pub(crate) fn word(intake: Intake) -> &'static str {
    match intake {
        Intake::Open => "open",
        Intake::Stopped(StopCause::Emergency) => "emergency",
        Intake::Stopped(StopCause::Operator) => "stopped",
    }
}

pub(crate) fn intake(value: &Value) -> Option<Intake> {
    match value {
        Value::Nil => Some(Intake::Open),
        Value::BulkString(text) => [
            Intake::Open,
            Intake::Stopped(StopCause::Emergency),
            Intake::Stopped(StopCause::Operator),
        ]
        .into_iter()
        .find(|intake| word(*intake).as_bytes() == text),
        _ => None,
    }
}

/// Scripts answer with the largest token, as text, where another was seen.
pub(crate) fn stale<T>(answer: &Value) -> Result<Fenced<T>, ServiceError> {
    let largest = match answer {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let largest = largest.and_then(|text| FencingToken::new(text.parse().ok()?).ok());
    let largest = largest.ok_or_else(|| unreadable("event store", "a token that is no number"))?;
    Ok(Fenced::Stale { largest })
}
