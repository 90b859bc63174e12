//! The encoding of tokens and intakes in Redis, for buffers and buckets.

use lease_core::FencingToken;
use redis::Value;

use crate::buffer::{Fenced, Intake, StopCause};
use crate::error::ServiceError;
use crate::redis::unreadable;

pub(crate) fn word(intake: Intake) -> &'static str {
    match intake {
        Intake::Open => "open",
        Intake::Stopped(StopCause::Emergency) => "emergency",
        Intake::Stopped(StopCause::Operator) => "stopped",
    }
}

/// A missing value means `at_first`.
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
    known.ok_or_else(|| unreadable("event store", "an unknown intake"))
}

/// Decodes a script's answer if the intake is stopped.
pub(crate) fn stopped(answer: &Value) -> Result<StopCause, ServiceError> {
    match intake(answer, Intake::Open)? {
        Intake::Stopped(cause) => Ok(cause),
        Intake::Open => Err(unreadable("event store", "an unknown answer")),
    }
}

/// If the token is stale, the answer is the largest token, as text.
pub(crate) fn stale<T>(answer: &Value) -> Result<Fenced<T>, ServiceError> {
    let largest = match answer {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let largest = largest.and_then(|text| FencingToken::new(text.parse().ok()?).ok());
    let largest =
        largest.ok_or_else(|| unreadable("event store", "a token that is not a number"))?;
    Ok(Fenced::Stale { largest })
}
