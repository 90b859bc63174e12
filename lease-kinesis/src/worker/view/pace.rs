//! Limits how fast a worker reads the rows that other workers have changed.
//!
//! After one change, all workers read the same rows, and often in the same second. Without a limit, the table throttles
//! these reads.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::now;

/// Each worker takes an equal part of the fleet's rate. So no worker must know what the others read.
#[derive(Debug, Default)]
pub(crate) struct ReadPace {
    /// The end of the time that the reads so far take.
    taken_until: Option<Instant>,
}

impl ReadPace {
    /// Returns how many of `wanted` rows this worker may read now, beside `sessions - 1` other workers.
    pub(crate) fn take(&mut self, wanted: usize, sessions: usize) -> usize {
        let (now, one) = (now(), time_of_one(sessions));
        let begin = self.taken_until.map_or(now, |until| until.max(now));
        let left = (now + AT_ONCE.max(one * FEWEST)).saturating_duration_since(begin);
        let most = left.as_nanos() / one.as_nanos();
        let granted = wanted.min(usize::try_from(most).unwrap_or(usize::MAX));
        if granted > 0 {
            self.taken_until = Some(begin + times(one, granted));
        }
        granted
    }

    /// When the worker may read the next rows.
    pub(crate) fn next(&self) -> Instant {
        let now = now();
        self.taken_until.map_or(now, |until| until.max(now))
    }
}

/// The time in which a worker can read the rows of all other workers.
pub(crate) fn time_of_all(sessions: usize) -> Duration {
    times(time_of_one(sessions), sessions)
}

fn time_of_one(sessions: usize) -> Duration {
    times(Duration::from_secs(1), sessions.max(1)) / READS_PER_SECOND
}

fn times(length: Duration, count: usize) -> Duration {
    length.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// By all workers together. One partition of `DynamoDB` gives 3,000 read units per second. The other half is for ticks,
/// lists and new workers.
const READS_PER_SECOND: u32 = 1_500;

/// A worker reads the rows of this time together. A longer time would raise the rate of a single second.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A notice and its shard. Otherwise, one change would cost each worker a look more.
const FEWEST: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    async fn reads_within(length: Duration, sessions: usize) -> usize {
        let (mut pace, end) = (ReadPace::default(), now() + length);
        let mut read = 0;
        while now() < end {
            read += pace.take(usize::MAX, sessions);
            tokio::time::sleep_until(pace.next()).await;
        }
        read
    }

    #[tokio::test(start_paused = true)]
    async fn fleet_of_any_size_reads_at_the_rate_of_a_fleet() {
        for sessions in [1, 10, 50, 200, 1_000] {
            let read = reads_within(Duration::from_secs(10), sessions).await * sessions;

            let most = 15_000 + 150 + 2 * sessions;
            assert!((13_000..=most).contains(&read), "{sessions} workers: {read} reads");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn notice_and_its_shard_are_read_at_once_in_a_fleet_of_any_size() {
        for sessions in [10, 75, 76, 200, 1_000] {
            let mut pace = ReadPace::default();
            assert_eq!(
                [pace.take(1, sessions), pace.take(1, sessions)],
                [1, 1],
                "{sessions} workers"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pause_saves_no_reads_for_later() {
        let mut pace = ReadPace::default();
        assert_eq!(pace.take(1, 10), 1);

        tokio::time::sleep(Duration::from_mins(1)).await;

        assert_eq!(pace.take(usize::MAX, 10), 15);
        assert_eq!(pace.take(usize::MAX, 10), 0);
    }
}
