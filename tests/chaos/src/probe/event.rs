//! The events that a probe reports, one per line.

use std::fmt;
use std::str::FromStr;

use crate::monotonic::Monotonic;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// The operating system scheduled the process.
    Tick { at: Monotonic },
    /// `call` was granted a key of `shard`.
    Granted { shard: usize, call: Call, at: Monotonic },
    /// `call` failed, or found a key held.
    Failed { shard: usize, call: Call, at: Monotonic, why: String },
    /// The lease to keep on `shard` was obtained.
    Kept { shard: usize, at: Monotonic },
    /// The lease to keep on `shard` was lost.
    Lost { shard: usize, at: Monotonic, why: String },
}

/// The kinds of calls by which a probe obtains a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// Single attempts, in a loop.
    Obtain,
    /// Waits for a key, in a loop.
    Wait,
    /// Waits of several contenders for the same key. Each contender releases the key at once.
    Contend,
    /// The call that obtains the lease to keep.
    Keep,
}

/// The error for a line that is incomplete, or that no probe writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseError;

impl fmt::Display for ProbeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick { at } => write!(f, "tick {at}"),
            Self::Granted { shard, call, at } => write!(f, "granted {at} {shard} {call}"),
            Self::Failed { shard, call, at, why } => {
                write!(f, "failed {at} {shard} {call} {}", one_line(why))
            }
            Self::Kept { shard, at } => write!(f, "kept {at} {shard}"),
            Self::Lost { shard, at, why } => write!(f, "lost {at} {shard} {}", one_line(why)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl FromStr for ProbeEvent {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        let mut words = line.splitn(3, ' ');
        let (verb, at) = (words.next(), words.next().ok_or(ParseError)?);
        let at = at.parse().map_err(|_number| ParseError)?;
        let rest = words.next().unwrap_or_default();
        let (shard, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let shard = || shard.parse().map_err(|_number| ParseError);
        let (call, why) = rest.split_once(' ').unwrap_or((rest, ""));
        Ok(match verb {
            Some("tick") => Self::Tick { at },
            Some("granted") => Self::Granted { shard: shard()?, call: call.parse()?, at },
            Some("failed") => {
                Self::Failed { shard: shard()?, call: call.parse()?, at, why: why.to_owned() }
            }
            Some("kept") => Self::Kept { shard: shard()?, at },
            Some("lost") => Self::Lost { shard: shard()?, at, why: rest.to_owned() },
            _ => return Err(ParseError),
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Obtain => "obtain",
            Self::Wait => "wait",
            Self::Contend => "contend",
            Self::Keep => "keep",
        })
    }
}

impl FromStr for Call {
    type Err = ParseError;

    fn from_str(word: &str) -> Result<Self, ParseError> {
        let calls = [Self::Obtain, Self::Wait, Self::Contend, Self::Keep];
        calls.into_iter().find(|call| call.to_string() == word).ok_or(ParseError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_survives_its_text_form() {
        let (at, shard, why) = (Monotonic::now(), 2, "in two words".to_owned());
        let events = [
            ProbeEvent::Tick { at },
            ProbeEvent::Granted { shard, call: Call::Wait, at },
            ProbeEvent::Failed { shard, call: Call::Obtain, at, why: why.clone() },
            ProbeEvent::Kept { shard, at },
            ProbeEvent::Lost { shard, at, why },
        ];
        for event in events {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
    }

    #[test]
    fn incomplete_line_is_rejected() {
        assert_eq!("granted".parse::<ProbeEvent>(), Err(ParseError));
        assert_eq!("granted 12 0".parse::<ProbeEvent>(), Err(ParseError));
    }
}
