//! Sending one batch, and what failed of it again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use lease_core::{FencingToken, InvalidInput};
use tracing::{debug, warn};

use crate::error::{ServiceError, ServiceErrorKind};
use crate::export::batch::{Batch, Record};
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
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) taken: Vec<Record>,
    pub(crate) failed: Vec<Record>,
    /// What the last request said, where it failed as a whole.
    pub(crate) error: Option<ServiceError>,
}

/// Sends `batch`, and what failed of it again, as often as `retries` says.
///
/// Dropping it leaves open which records of the last request arrived.
pub(crate) async fn deliver(
    sink: &dyn Sink,
    token: FencingToken,
    batch: Batch,
    retries: Retries,
) -> Delivered {
    let mut pauses = retries.pauses();
    let mut delivered = Delivered { taken: Vec::new(), failed: batch.into_records(), error: None };
    loop {
        delivered.error = None;
        match put(sink, token, &delivered.failed).await {
            Ok(answers) => {
                for (record, answer) in
                    std::mem::take(&mut delivered.failed).into_iter().zip(answers)
                {
                    match answer {
                        Put::Taken => delivered.taken.push(record),
                        Put::Failed(why) => {
                            debug!(key = %record.key(), why, "record not taken");
                            delivered.failed.push(record);
                        }
                    }
                }
                if delivered.failed.is_empty() {
                    return delivered;
                }
            }
            Err(error) if error.is_retryable() => delivered.error = Some(error),
            Err(error) => {
                delivered.error = Some(error);
                return delivered;
            }
        }
        let Some(pause) = pauses.next() else {
            warn!(records = delivered.failed.len(), "records not taken stay pending");
            return delivered;
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
