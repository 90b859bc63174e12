//! Sends one batch, and retries its failed records.

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
use crate::partition::Partitioner;
use crate::sink::{Put, SERVICE, Sink};

/// The number of retries of failed records, and the pauses between retries. Each pause is twice as
/// long as the previous pause, plus a random time of up to the same length. So exporters that
/// failed together retry at different times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    times: usize,
    first: Duration,
    longest: Duration,
}

impl Retries {
    /// No retries: the next export sends the failed records.
    pub(crate) const NONE: Self = Self { times: 0, first: Duration::ZERO, longest: Duration::ZERO };

    /// Retries up to `times` times, 0 to 20. The first pause is `first`. Later pauses are up to
    /// `longest`, at most 1 minute.
    ///
    /// # Errors
    ///
    /// Fails if `times` or `longest` is out of range, or `first` is longer than `longest`.
    pub fn new(times: usize, first: Duration, longest: Duration) -> Result<Self, InvalidInput> {
        if times > MOST_TIMES {
            return Err(InvalidInput::new(format!(
                "{times} retries are out of range: 0 to {MOST_TIMES}; the next export sends \
                 failed records"
            )));
        }
        if longest > Duration::from_secs(60) || first > longest {
            return Err(InvalidInput::new(format!(
                "pauses of {first:?} to {longest:?} are out of range: growing, up to 1 minute"
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
    /// Makes 4 retries within about 3 s. A throttled shard recovers within a second. After a longer
    /// outage, the next export sends the records.
    fn default() -> Self {
        Self { times: 4, first: Duration::from_millis(100), longest: Duration::from_secs(2) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) taken: Vec<Record>,
    pub(crate) failed: Vec<Record>,
    /// Each event was in a record of its own.
    pub(crate) refused: Vec<Refused>,
    /// The error of a last request that failed as a whole. The records of this request count as
    /// failed.
    pub(crate) error: Option<ServiceError>,
}

#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) position: Position,
    pub(crate) event: Event,
    pub(crate) error: ServiceError,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SinkCall<'a> {
    pub(crate) sink: &'a dyn Sink,
    pub(crate) partitioner: &'a Partitioner,
    pub(crate) token: FencingToken,
    pub(crate) limit: Duration,
    pub(crate) retries: Retries,
}

/// Limits the bisection of a refused batch while the sink takes none of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BisectMode {
    Thorough,
    /// The sink took nothing of the last batches.
    Brief,
}

impl SinkCall<'_> {
    /// Sends `records`, with retries. If the sink refuses a request's content, bisects the request
    /// down to the single events that the sink refuses.
    ///
    /// With n events in the batch, each refused event costs at most about 2 log₂ n requests. After
    /// about log₂ n refusals in a row, the bisection continues at another place of the batch. If
    /// the sink takes nothing at several places, the next export sends the rest, and tries other
    /// places by its other token. So every good event is found in the end, without any state
    /// between exports.
    ///
    /// If this future is dropped, it is unknown which records of the last request arrived.
    pub(crate) async fn deliver(self, records: Vec<Record>, mode: BisectMode) -> Delivered {
        let mut delivered = Delivered::default();
        let events = events_of(&records);
        // The number of refusals until a bisection of all events has found one event.
        let depth = events.checked_ilog2().unwrap_or(0) + 2;
        let places = if mode == BisectMode::Thorough { PLACES } else { BRIEF_PLACES };
        // Different tokens must choose different halves. Knuth's multiplicative hashing spreads
        // their bits.
        let choices = self.token.get().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut refusals = 0;
        // The oldest records are on top.
        let mut parts = vec![records];
        while let Some(part) = parts.pop() {
            let sent = self.send(part).await;
            if !sent.taken.is_empty() {
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
                    let is_first_place = refusals <= depth;
                    match halves(self.partitioner, sent.failed) {
                        Halves::Two(first, second)
                            if is_first_place || choices.rotate_right(refusals) & 1 == 0 =>
                        {
                            parts.extend([second, first]);
                        }
                        Halves::Two(first, second) => parts.extend([first, second]),
                        Halves::One(position, event) => {
                            delivered.refused.push(Refused { position, event, error });
                        }
                    }
                    if refusals >= depth * places {
                        break;
                    }
                    if refusals % depth == 0 {
                        parts.sort_by_cached_key(|part| events_of(part));
                    }
                }
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

    /// The sink must answer within the limit, with one answer per record.
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
        let sentence = format!("{} answers for {} records", answers.len(), records.len());
        Err(ServiceError::new(SERVICE, ServiceErrorKind::Corrupt, sentence))
    }
}

enum Halves {
    Two(Vec<Record>, Vec<Record>),
    One(Position, Event),
}

fn halves(partitioner: &Partitioner, mut records: Vec<Record>) -> Halves {
    if records.len() > 1 {
        let second = records.split_off(records.len() / 2);
        return Halves::Two(records, second);
    }
    let events: Vec<_> = records.iter().flat_map(Record::pending).collect();
    if let [event] = events.as_slice() {
        return Halves::One(event.position(), event.event().clone());
    }
    let (first, second) = events.split_at(events.len() / 2);
    let record = |events| Record::of_all(partitioner, events).into_iter().collect();
    Halves::Two(record(first), record(second))
}

fn events_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.ids().count()).sum()
}

const MOST_TIMES: usize = 20;

/// The number of places at which a refused batch is bisected while the sink takes nothing. If one
/// event in twenty is bad, all eight places are bad once in 10¹⁰ batches.
const PLACES: u32 = 8;

const BRIEF_PLACES: u32 = 2;
