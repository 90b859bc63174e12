//! Sending one batch, and what failed of it again.

use std::cmp::Reverse;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use lease_core::{FencingToken, InvalidInput};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::batch::Record;
use crate::buffer::Position;
use crate::error::{ServiceError, ServiceErrorKind};
use crate::event::Event;
use crate::sink::{Put, SERVICE, Sink};

/// How often what failed is sent again, and how long it waits before: each time twice as long, and
/// up to twice that at random, so that exporters that failed together do not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    times: usize,
    first: Duration,
    longest: Duration,
}

impl Retries {
    /// Sends what failed at the next run.
    pub(crate) const NONE: Self = Self { times: 0, first: Duration::ZERO, longest: Duration::ZERO };

    /// Sends what failed up to `times` more times, 0 to 20, first after `first`, later after
    /// `longest` at most, up to a minute.
    ///
    /// # Errors
    ///
    /// Where `times` or `longest` is out of range, or `first` is longer than `longest`.
    pub fn new(times: usize, first: Duration, longest: Duration) -> Result<Self, InvalidInput> {
        if times > MOST_TIMES {
            return Err(InvalidInput::new(format!(
                "{times} retries are out of range: 0 to {MOST_TIMES}; what fails then stays \
                 pending, and is sent at the next run"
            )));
        }
        if longest > Duration::from_secs(60) || first > longest {
            return Err(InvalidInput::new(format!(
                "pauses of {first:?} to {longest:?} are out of range: growing, and a minute at most"
            )));
        }
        Ok(Self { times, first, longest })
    }

    fn pauses(self) -> impl Iterator<Item = Duration> {
        ExponentialBuilder::new()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .with_max_times(self.times)
            .with_jitter()
            .build()
    }
}

impl Default for Retries {
    /// Four more times within some 3 s: a throttled shard recovers within a second, and a longer
    /// outage is the next run's.
    fn default() -> Self {
        Self { times: 4, first: Duration::from_millis(100), longest: Duration::from_secs(2) }
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) taken: Vec<Record>,
    pub(crate) failed: Vec<Record>,
    /// What was refused for good, each event alone.
    pub(crate) refused: Vec<Refused>,
    /// What the last request said, where it failed as a whole and what was in it counts as failed.
    pub(crate) error: Option<ServiceError>,
}

/// An event that was refused alone.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) position: Position,
    pub(crate) event: Event,
    pub(crate) error: ServiceError,
}

/// The way to a sink under a token: how long each request may take, and what is tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door<'a> {
    pub(crate) sink: &'a dyn Sink,
    pub(crate) token: FencingToken,
    pub(crate) limit: Duration,
    pub(crate) retries: Retries,
}

/// How far events that are refused are looked through for one that is not, while none is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    Thorough,
    /// Of a sink that has taken nothing for a while.
    Brief,
}

impl Door<'_> {
    /// Sends `records`, and what failed of them again, as often as the retries say. Where the sink
    /// refuses what is in a request, that is sent again in halves, down to the events because of which
    /// it does.
    ///
    /// Each event that is refused costs about log₂ of their number, and as many taken requests, at
    /// most. Where refusals come in a row, the look goes on elsewhere: a bad beginning says nothing of
    /// the rest. Where it finds nothing there either, the rest is kept for the next export. That looks
    /// at other places, since its token is another: so none is left out for ever, and nobody has to
    /// remember anything.
    ///
    /// Dropping it leaves open which records of the last request arrived.
    pub(crate) async fn deliver(self, records: Vec<Record>, search: Search) -> Delivered {
        let mut delivered = Delivered::default();
        let events = events_of(&records);
        // How many refusals lead from all of them to one.
        let depth = events.checked_ilog2().unwrap_or(0) + 2;
        let looks = if search == Search::Thorough { LOOKS } else { BRIEF_LOOKS };
        // Of all tokens, some go any way at any fork: Knuth's multiplicative hashing spreads them.
        let ways = self.token.get().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut refusals = 0;
        // The oldest on top.
        let mut parts = vec![records];
        while let Some(part) = parts.pop() {
            let sent = self.send(part).await;
            if !sent.taken.is_empty() {
                // What was left for a look elsewhere comes first again.
                if refusals > depth {
                    parts.sort_by_cached_key(|part| {
                        Reverse(part.iter().flat_map(Record::positions).min())
                    });
                }
                refusals = 0;
            }
            delivered.taken.extend(sent.taken);
            match sent.error {
                None => delivered.failed.extend(sent.failed),
                Some(error) if error.kind() == ServiceErrorKind::Content => {
                    refusals += 1;
                    let is_first_look = refusals <= depth;
                    match halves(sent.failed) {
                        Halves::Two(first, second)
                            if is_first_look || ways.rotate_right(refusals) & 1 == 0 =>
                        {
                            parts.extend([second, first]);
                        }
                        Halves::Two(first, second) => parts.extend([first, second]),
                        Halves::One(position, event) => {
                            delivered.refused.push(Refused { position, event, error });
                        }
                    }
                    if refusals >= depth * looks {
                        break;
                    }
                    if refusals % depth == 0 {
                        parts.sort_by_cached_key(|part| events_of(part));
                    }
                }
                // Others would fare no better now.
                Some(error) => {
                    delivered.failed.extend(sent.failed);
                    delivered.error = Some(error);
                    break;
                }
            }
        }
        delivered.failed.extend(parts.into_iter().rev().flatten());
        delivered
    }

    /// Sends `records` in one request, and what failed of them again, as often as the retries say.
    async fn send(self, records: Vec<Record>) -> Delivered {
        let mut pauses = self.retries.pauses();
        let mut sent = Delivered { failed: records, ..Delivered::default() };
        loop {
            sent.error = None;
            match self.put(&sent.failed).await {
                Ok(answers) => {
                    for (record, answer) in
                        std::mem::take(&mut sent.failed).into_iter().zip(answers)
                    {
                        match answer {
                            Put::Taken => sent.taken.push(record),
                            Put::Failed(why) => {
                                debug!(key = %record.key(), why, "record not taken");
                                sent.failed.push(record);
                            }
                        }
                    }
                    if sent.failed.is_empty() {
                        return sent;
                    }
                }
                Err(error) if error.is_retryable() => sent.error = Some(error),
                Err(error) => {
                    sent.error = Some(error);
                    return sent;
                }
            }
            let Some(pause) = pauses.next() else {
                warn!(records = sent.failed.len(), "records not taken stay pending");
                return sent;
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// One request, whose answer has to come in time, and to be as long as it is.
    async fn put(self, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let unavailable = |_elapsed| {
            let sentence = format!("not within {:?}", self.limit);
            ServiceError::new(SERVICE, ServiceErrorKind::Unavailable, sentence)
        };
        let put = timeout(self.limit, self.sink.put(self.token, records));
        let answers = put.await.map_err(unavailable)??;
        if answers.len() == records.len() {
            return Ok(answers);
        }
        // Nobody can tell which record an answer is for.
        let sentence = format!("{} answers for {} records", answers.len(), records.len());
        Err(ServiceError::new(SERVICE, ServiceErrorKind::Corrupt, sentence))
    }
}

enum Halves {
    Two(Vec<Record>, Vec<Record>),
    /// There was one event.
    One(Position, Event),
}

fn halves(mut records: Vec<Record>) -> Halves {
    if records.len() > 1 {
        let second = records.split_off(records.len() / 2);
        return Halves::Two(records, second);
    }
    let events: Vec<_> = records.iter().flat_map(Record::pending).collect();
    if let [event] = events.as_slice() {
        return Halves::One(event.position(), event.event().clone());
    }
    let (first, second) = events.split_at(events.len() / 2);
    let record = |events| Record::of_all(events).into_iter().collect();
    Halves::Two(record(first), record(second))
}

fn events_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.ids().count()).sum()
}

const MOST_TIMES: usize = 20;

/// At how many places events are looked at, in a batch of which nothing but refusals came since the
/// last that was taken: where one event in twenty is bad, all eight are once in 10¹⁰.
const LOOKS: u32 = 8;

const BRIEF_LOOKS: u32 = 2;
