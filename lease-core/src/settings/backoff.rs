//! Pauses between requests to a store.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::options::LeaseOptions;
use crate::settings::random::Random;

/// Each pause is twice the previous pause. The longest pause is the heartbeat period, and at most
/// [`LONGEST`](Pauses::LONGEST). The first pause is a sixteenth of the longest. Random cuts by up to half
/// keep clients from retrying together.
pub(crate) struct Pauses<'a> {
    lengths: backon::ExponentialBackoff,
    longest: Duration,
    random: &'a Random,
}

impl<'a> Pauses<'a> {
    /// As long as a request may take.
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

    pub(crate) fn after(failures: u32, options: &LeaseOptions, random: &Random) -> Duration {
        let mut pauses = Pauses::new(options, random);
        for _ in 1..failures.min(6) {
            pauses.lengths.next();
        }
        pauses.next()
    }
}
