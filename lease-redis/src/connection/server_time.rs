//! Estimates the current time on a server from its last report.

use std::time::Duration;

use lease_core::store::Moment;
use parking_lot::Mutex;

/// The last time that a server reported.
///
/// The error of the estimate is at most the duration of the request, plus the drift of the clocks since then.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    asked: Moment,
    /// Microseconds since 1970.
    micros: u64,
}

impl ServerTime {
    /// Records `micros` as the server's time when the request was sent. If a later request takes the same
    /// time, the estimate at its send equals the server's time at its arrival.
    pub(crate) fn record(&self, asked: Moment, micros: u64) {
        *self.0.lock() = Some(Reading { asked, micros });
    }

    pub(crate) fn at(&self, now: Moment) -> Option<u64> {
        let reading = (*self.0.lock())?;
        let since = u64::try_from(now.since(reading.asked).as_micros()).unwrap_or(u64::MAX);
        reading.micros.checked_add(since)
    }

    pub(crate) fn is_old(&self, now: Moment) -> bool {
        self.0.lock().is_none_or(|reading| now.since(reading.asked) >= REPORTED_EVERY)
    }
}

/// If all servers have reported, a minority with wrong clocks cannot move the median beyond the majority's
/// times.
pub(crate) fn median(times: impl Iterator<Item = u64>) -> Option<u64> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// In this time, clocks drift apart by less than a millisecond.
const REPORTED_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_advances_from_the_time_of_the_request() {
        let time = ServerTime::default();
        assert_eq!(time.at(Moment::from_nanos(5_000)), None);

        time.record(Moment::from_nanos(2_000), 1_000_000);

        assert_eq!(time.at(Moment::from_nanos(5_000)), Some(1_000_003));
    }

    #[test]
    fn median_ignores_wrong_clocks_of_a_minority() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([7].into_iter()), Some(7));
        assert_eq!(median([9_000, 10, 12].into_iter()), Some(12));
        assert_eq!(median([1, 10, 9_000, 12, 2].into_iter()), Some(10));
    }
}
