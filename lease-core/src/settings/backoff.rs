//! How long to wait before asking a store again, and how long for its answer.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::error::{StoreError, StoreErrorKind};
use crate::options::LeaseOptions;
use crate::random::Random;

/// Pauses between attempts: doubling from a sixteenth of the heartbeat period up to all of it, or of
/// [`LONGEST`](Pauses::LONGEST), each cut at random by up to half, so that clients that failed together
/// part ways.
pub(crate) struct Pauses<'a> {
    lengths: backon::ExponentialBackoff,
    longest: Duration,
    random: &'a Random,
}

impl<'a> Pauses<'a> {
    /// How long a ttl may delay what one failed request has missed: as long as a request may take.
    pub(crate) const LONGEST: Duration = Duration::from_secs(5);

    pub(crate) fn new(options: &LeaseOptions, random: &'a Random) -> Self {
        let longest = options.heartbeat_period().min(Self::LONGEST);
        let lengths = ExponentialBuilder::new()
            .with_min_delay(longest / 16)
            .with_max_delay(longest)
            .without_max_times()
            .build();
        Self { lengths, longest, random }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let length = self.lengths.next().unwrap_or(self.longest);
        self.random.part_of(length, 0.5)
    }

    /// The pause after `failures` failures in a row, for whoever keeps count.
    pub(crate) fn after(failures: u32, options: &LeaseOptions, random: &Random) -> Duration {
        let mut pauses = Pauses::new(options, random);
        for _ in 1..failures.min(6) {
            pauses.lengths.next();
        }
        pauses.next()
    }
}

/// Waits for a store's answer, but no longer than `limit`: a store that hangs is one that did
/// not answer. For those who ask a store themselves, beside a [`Locker`](crate::Locker), which does
/// so by itself; [`LeaseOptions::request_timeout`] is its limit.
///
/// # Errors
///
/// The store's own, and [`Unavailable`](StoreErrorKind::Unavailable) after `limit`.
///
/// # Cancel safety
///
/// As that of `answer`, which is dropped: the request may still be applied.
pub async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            Err(StoreError::new(StoreErrorKind::Unavailable, format!("no answer within {limit:?}")))
        }
    }
}
