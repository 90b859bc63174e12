//! Parsers of the command line. Each error names the allowed values.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use lease_core::LeaseOptions;

pub(crate) fn workers(text: &str) -> Result<usize, String> {
    number(text, 2..=20, "since one is killed and another stops")
}

pub(crate) fn shards(text: &str) -> Result<u16, String> {
    number(text, 2..=200, "since two are merged")
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    allowed: RangeInclusive<N>,
    reason: &str,
) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    let (first, last) = allowed.into_inner();
    number.ok_or_else(|| format!("a number from {first} to {last}, {reason}"))
}

pub(crate) fn leases(text: &str) -> Result<LeaseOptions, String> {
    let seconds = text.parse().ok();
    let ttl = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let options = ttl.and_then(|ttl| LeaseOptions::new(ttl).ok());
    options.ok_or_else(|| "a number of seconds from 0.1 to 86400, which is a day".to_owned())
}

/// A stream's name, by the rules of
/// [`CreateStream`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_CreateStream.html),
/// or its ARN.
pub(crate) fn stream(text: &str) -> Result<String, String> {
    let name = match text.strip_prefix("arn:") {
        Some(rest) => rest.split_once(":stream/").map_or("", |(_, name)| name),
        None => text,
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(text.to_owned());
    }
    let allowed = "a name of 1 to 128 letters, digits, \"_\", \".\" and \"-\", or an ARN, \
                   arn:aws:kinesis:REGION:ACCOUNT:stream/NAME";
    Err(allowed.to_owned())
}
