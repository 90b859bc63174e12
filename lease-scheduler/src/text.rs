//! Texts in records, which operators read.

use std::error::Error;

use jiff::Timestamp;
use lease_core::Value;

/// Encodes a time, to the nanosecond. Operators read records, so the time is a text.
pub(crate) fn text(time: Timestamp) -> Value {
    Value::from(time.to_string())
}

/// Joins the texts of an error and its sources, outermost first.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let levels = std::iter::successors(Some(error), |&error| error.source());
    levels.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
