//! What a worker tells, one line each.

use std::fmt;
use std::str::FromStr;

use crate::stamp::Stamp;

/// A line of a worker. Counters go by their numbers, each of which is also a lease's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Saying {
    /// It has a lease, which it asked for at `asked`, and which said that it was held some time
    /// before `held`; and by which call.
    Obtained { counter: usize, token: u64, asked: Stamp, held: Stamp, by: String },
    /// It was given a lease that had run out before it could look.
    TooLate { counter: usize, token: u64, asked: Stamp },
    /// Its lease said, some time after `at`, that it was held.
    Held { counter: usize, token: u64, at: Stamp },
    /// It is done with its lease.
    Ended { counter: usize, token: u64, at: Stamp, how: String },
    /// It wants to write under `token` from now on, and know the counter's value.
    Open { request: u64, counter: usize, token: u64 },
    /// It counts on from the value that it read.
    Write { request: u64, counter: usize, token: u64, read: u64, sent: Stamp },
    /// It hands a lease over to whoever resumes it.
    Offer { counter: usize, text: String },
    /// Something to be counted happened, such as a call that failed.
    Counted { what: String },
}

impl fmt::Display for Saying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Obtained { counter, token, asked, held, by } => {
                write!(f, "obtained {counter} {token} {asked} {held} {by}")
            }
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
            Self::Counted { what } => write!(f, "counted {what}"),
        }
    }
}

/// A line that no worker says, or not to its end: whoever is killed stops in mid-sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unheard;

impl FromStr for Saying {
    type Err = Unheard;

    fn from_str(line: &str) -> Result<Self, Unheard> {
        let (verb, rest) = line.split_once(' ').ok_or(Unheard)?;
        let mut words = Words(rest);
        Ok(match verb {
            "obtained" => Self::Obtained {
                counter: words.next()?,
                token: words.next()?,
                asked: words.next()?,
                held: words.next()?,
                by: words.rest()?,
            },
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
            "counted" => Self::Counted { what: words.rest()? },
            _ => return Err(Unheard),
        })
    }
}

struct Words<'a>(&'a str);

impl Words<'_> {
    fn next<T: FromStr>(&mut self) -> Result<T, Unheard> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        word.parse().map_err(|_other| Unheard)
    }

    fn rest(self) -> Result<String, Unheard> {
        if self.0.is_empty() { Err(Unheard) } else { Ok(self.0.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let at = Stamp::now();
        let sayings = [
            Saying::Obtained { counter: 1, token: 2, asked: at, held: at, by: "obtain".to_owned() },
            Saying::TooLate { counter: 1, token: 2, asked: at },
            Saying::Held { counter: 1, token: 2, at },
            Saying::Ended { counter: 1, token: 2, at, how: "lost: in two words".to_owned() },
            Saying::Open { request: 1, counter: 2, token: 3 },
            Saying::Write { request: 1, counter: 2, token: 3, read: 4, sent: at },
            Saying::Offer { counter: 1, text: "{\"key\": \"counter-1\"}".to_owned() },
            Saying::Counted { what: "obtain failed".to_owned() },
        ];
        for said in sayings {
            assert_eq!(said.to_string().parse(), Ok(said));
        }
    }

    #[test]
    fn half_a_sentence_is_not_heard() {
        assert_eq!("held 1 2".parse::<Saying>(), Err(Unheard));
    }
}
