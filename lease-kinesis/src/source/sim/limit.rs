//! What a shard gives and takes in a second, as
//! [Kinesis' limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html)
//! have it.

use std::collections::VecDeque;
use std::time::Duration;

/// So many calls within any second.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// When the last ones were, by the stream's own time.
    made: VecDeque<Duration>,
}

impl Calls {
    /// Counts a call at `now`, unless there were too many.
    pub(super) fn allow(&mut self, now: Duration, most: usize) -> bool {
        self.made.retain(|&made| now.saturating_sub(made) < SECOND);
        if self.made.len() >= most {
            return false;
        }
        self.made.push_back(now);
        true
    }
}

/// So many bytes a second: an answer may be larger, and is paid off afterwards.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    paid_off: Duration,
}

impl Bytes {
    /// Whether what was given is paid off, but for the share of one second.
    pub(super) fn allow(&self, now: Duration) -> bool {
        self.paid_off <= now + SECOND
    }

    /// Counts `bytes` given at `now`. Says when they are paid off.
    pub(super) fn give(&mut self, now: Duration, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let micros = bytes.saturating_mul(1_000_000) / BYTES_PER_SECOND;
        self.paid_off = self.paid_off.max(now) + Duration::from_micros(micros);
        self.paid_off
    }
}

/// So many records and bytes put within any second.
#[derive(Debug, Default)]
pub(super) struct Puts {
    /// When the last ones were, and how large.
    made: VecDeque<(Duration, usize)>,
    bytes: usize,
}

impl Puts {
    /// Counts a record of `bytes` put at `now`, unless there were too many.
    pub(super) fn allow(&mut self, now: Duration, bytes: usize) -> bool {
        while let Some((_, past)) =
            self.made.pop_front_if(|(made, _)| now.saturating_sub(*made) >= SECOND)
        {
            self.bytes -= past;
        }
        if self.made.len() >= MOST_PUTS || self.bytes + bytes > MOST_BYTES_PUT {
            return false;
        }
        self.made.push_back((now, bytes));
        self.bytes += bytes;
        true
    }
}

/// Of one answer: the most bytes, and the most records.
pub(super) const MOST_BYTES: usize = 10 * 1024 * 1024;
pub(super) const MOST_RECORDS: u16 = 10_000;

/// For one shard, in any second.
pub(super) const MOST_FETCHES: usize = 5;
pub(super) const MOST_ITERATORS: usize = 5;

/// Into one shard, in any second.
const MOST_PUTS: usize = 1_000;
const MOST_BYTES_PUT: usize = 1024 * 1024;

const BYTES_PER_SECOND: u64 = 2 * 1024 * 1024;

const SECOND: Duration = Duration::from_secs(1);
