//! The messages of a worker, one per line.

use std::fmt;
use std::str::FromStr;

use crate::monotonic::Monotonic;

/// The number of a counter is also the key of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The worker obtained a lease by the call `by`, between `asked` and `held`.
    Obtained { counter: usize, token: u64, asked: Monotonic, held: Monotonic, by: String },
    /// The wait that began after `asked` had a place in the queue before `at`.
    Queued { counter: usize, asked: Monotonic, at: Monotonic },
    /// The worker obtained a lease after its expiry.
    TooLate { counter: usize, token: u64, asked: Monotonic },
    /// The lease was still held after `at`.
    Held { counter: usize, token: u64, at: Monotonic },
    /// The worker ended its use of the lease.
    Ended { counter: usize, token: u64, at: Monotonic, how: String },
    /// The worker asks for the counter's value, to write under `token` from now on.
    Open { request: u64, counter: usize, token: u64 },
    /// The worker increments the value that it read.
    Write { request: u64, counter: usize, token: u64, read: u64, sent: Monotonic },
    /// The worker hands a lease over to another worker.
    Offer { counter: usize, text: String },
    /// A claim failed because its key has another type.
    WrongType { counter: usize, asked: Monotonic, at: Monotonic, error: String },
    /// An event to count, such as a failed call.
    Counted { what: String },
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Obtained { counter, token, asked, held, by } => {
                write!(f, "obtained {counter} {token} {asked} {held} {by}")
            }
            Self::Queued { counter, asked, at } => write!(f, "queued {counter} {asked} {at}"),
            Self::TooLate { counter, token, asked } => {
                write!(f, "too-late {counter} {token} {asked}")
            }
            Self::Held { counter, token, at } => write!(f, "held {counter} {token} {at}"),
            Self::Ended { counter, token, at, how } => {
                write!(f, "ended {counter} {token} {at} {how}")
            }
            Self::Open { request, counter, token } => write!(f, "open {request} {counter} {token}"),
            Self::Write { request, counter, token, read, sent } => {
                write!(f, "write {request} {counter} {token} {read} {sent}")
            }
            Self::Offer { counter, text } => write!(f, "offer {counter} {text}"),
            Self::WrongType { counter, asked, at, error } => {
                write!(f, "wrong-type {counter} {asked} {at} {error}")
            }
            Self::Counted { what } => write!(f, "counted {what}"),
        }
    }
}

/// The error for an invalid or incomplete line. A killed process may stop in the middle of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseError;

impl FromStr for Message {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        let (verb, rest) = line.split_once(' ').ok_or(ParseError)?;
        let mut words = Words(rest);
        Ok(match verb {
            "obtained" => Self::Obtained {
                counter: words.next()?,
                token: words.next()?,
                asked: words.next()?,
                held: words.next()?,
                by: words.rest()?,
            },
            "queued" => {
                Self::Queued { counter: words.next()?, asked: words.next()?, at: words.next()? }
            }
            "too-late" => {
                Self::TooLate { counter: words.next()?, token: words.next()?, asked: words.next()? }
            }
            "held" => {
                Self::Held { counter: words.next()?, token: words.next()?, at: words.next()? }
            }
            "ended" => Self::Ended {
                counter: words.next()?,
                token: words.next()?,
                at: words.next()?,
                how: words.rest()?,
            },
            "open" => {
                Self::Open { request: words.next()?, counter: words.next()?, token: words.next()? }
            }
            "write" => Self::Write {
                request: words.next()?,
                counter: words.next()?,
                token: words.next()?,
                read: words.next()?,
                sent: words.next()?,
            },
            "offer" => Self::Offer { counter: words.next()?, text: words.rest()? },
            "wrong-type" => Self::WrongType {
                counter: words.next()?,
                asked: words.next()?,
                at: words.next()?,
                error: words.rest()?,
            },
            "counted" => Self::Counted { what: words.rest()? },
            _ => return Err(ParseError),
        })
    }
}

struct Words<'a>(&'a str);

impl Words<'_> {
    fn next<T: FromStr>(&mut self) -> Result<T, ParseError> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        word.parse().map_err(|_other| ParseError)
    }

    fn rest(self) -> Result<String, ParseError> {
        if self.0.is_empty() { Err(ParseError) } else { Ok(self.0.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_its_text_form() {
        let at = Monotonic::now();
        let messages = [
            Message::Obtained {
                counter: 1,
                token: 2,
                asked: at,
                held: at,
                by: "obtain".to_owned(),
            },
            Message::Queued { counter: 1, asked: at, at },
            Message::TooLate { counter: 1, token: 2, asked: at },
            Message::Held { counter: 1, token: 2, at },
            Message::Ended { counter: 1, token: 2, at, how: "lost: in two words".to_owned() },
            Message::Open { request: 1, counter: 2, token: 3 },
            Message::Write { request: 1, counter: 2, token: 3, read: 4, sent: at },
            Message::Offer { counter: 1, text: "{\"key\": \"counter-1\"}".to_owned() },
            Message::WrongType { counter: 1, asked: at, at, error: "in words".to_owned() },
            Message::Counted { what: "obtain failed".to_owned() },
        ];
        for message in messages {
            assert_eq!(message.to_string().parse(), Ok(message));
        }
    }

    #[test]
    fn incomplete_message_is_rejected() {
        assert_eq!("held 1 2".parse::<Message>(), Err(ParseError));
    }
}
