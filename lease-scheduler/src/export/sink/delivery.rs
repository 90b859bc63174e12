//! Sending one batch, and what failed of it again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use lease_core::{FencingToken, InvalidInput};
use tracing::{debug, warn};

use crate::error::{ServiceError, ServiceErrorKind};
use crate::export::batch::{Batch, Record};
use crate::export::buffer::Position;
use crate::export::event::Event;
use crate::export::sink::{Put, SERVICE, Sink};

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

/// How many requests in a row were refused for good.
#[derive(Debug, Default)]
pub(crate) struct Refusals(u32);

/// Sends `batch`, and what failed of it again, as often as `retries` says. A request that is refused
/// for good is sent again in halves, down to the events because of which it is.
///
/// Dropping it leaves open which records of the last request arrived.
pub(crate) async fn deliver(
    sink: &dyn Sink,
    token: FencingToken,
    batch: Batch,
    retries: Retries,
    refusals: &mut Refusals,
) -> Delivered {
    let mut delivered = Delivered::default();
    // The oldest on top.
    let mut parts = vec![batch.into_records()];
    while let Some(part) = parts.pop() {
        let sent = send(sink, token, part, retries).await;
        if !sent.taken.is_empty() {
            refusals.0 = 0;
        }
        delivered.taken.extend(sent.taken);
        match sent.error {
            Some(error) if error.kind() == ServiceErrorKind::Refused => {
                refusals.0 += 1;
                if refusals.0 > MOST_REFUSALS {
                    delivered.failed.extend(sent.failed);
                    delivered.error = Some(error);
                    continue;
                }
                match halves(sent.failed) {
                    Halves::Two(first, second) => parts.extend([second, first]),
                    Halves::One(position, event) => {
                        delivered.refused.push(Refused { position, event, error });
                    }
                }
            }
            error => {
                delivered.failed.extend(sent.failed);
                delivered.error = error.or(delivered.error);
            }
        }
    }
    delivered
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

/// Sends `records`, and what failed of them again, as often as `retries` says.
async fn send(
    sink: &dyn Sink,
    token: FencingToken,
    records: Vec<Record>,
    retries: Retries,
) -> Delivered {
    let mut pauses = retries.pauses();
    let mut sent = Delivered { failed: records, ..Delivered::default() };
    loop {
        sent.error = None;
        match put(sink, token, &sent.failed).await {
            Ok(answers) => {
                for (record, answer) in std::mem::take(&mut sent.failed).into_iter().zip(answers) {
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

/// One request, whose answer has to be as long as it is.
async fn put(
    sink: &dyn Sink,
    token: FencingToken,
    records: &[Record],
) -> Result<Vec<Put>, ServiceError> {
    let answers = sink.put(token, records).await?;
    if answers.len() == records.len() {
        return Ok(answers);
    }
    // Nobody can tell which record an answer is for.
    let sentence = format!("{} answers for {} records", answers.len(), records.len());
    Err(ServiceError::new(SERVICE, ServiceErrorKind::Corrupt, sentence))
}

const MOST_TIMES: usize = 20;

/// After so many refusals in a row, requests are not sent in halves any more until one is taken: a
/// sink that refuses everything, for want of credentials, is asked once per batch. Halving gets
/// from the 35,000 events of a large batch down to one in 16.
const MOST_REFUSALS: u32 = 40;
