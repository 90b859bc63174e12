//! How tokens and intakes are written in Redis: by buffers and buckets alike.

use lease_core::FencingToken;
use redis::Value;

use crate::buffer::{Fenced, Intake, StopCause};
use crate::error::ServiceError;
use crate::redis::unreadable;

/// How an intake is written.
pub(crate) fn word(intake: Intake) -> &'static str {
    match intake {
        Intake::Open => "open",
        Intake::Stopped(StopCause::Emergency) => "emergency",
        Intake::Stopped(StopCause::Operator) => "stopped",
    }
}

/// Reads an intake that is `at_first` until somebody has said otherwise.
pub(crate) fn intake(value: &Value, at_first: Intake) -> Result<Intake, ServiceError> {
    let known = match value {
        Value::Nil => Some(at_first),
        Value::BulkString(text) => [
            Intake::Open,
            Intake::Stopped(StopCause::Emergency),
            Intake::Stopped(StopCause::Operator),
        ]
        .into_iter()
        .find(|intake| word(*intake).as_bytes() == text),
        _ => None,
    };
    known.ok_or_else(|| unreadable("event store", "an intake that is not known"))
}

/// Scripts answer with a word where nothing is taken in.
pub(crate) fn stopped(answer: &Value) -> Result<StopCause, ServiceError> {
    match intake(answer, Intake::Open)? {
        Intake::Stopped(cause) => Ok(cause),
        Intake::Open => Err(unreadable("event store", "an answer that is not known")),
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
