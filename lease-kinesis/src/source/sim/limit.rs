//! The rate and size limits of a shard, from [Kinesis'
//! limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html).

use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Calls {
    made: VecDeque<Duration>,
}

impl Calls {
    pub(super) fn allow(&mut self, now: Duration, most: usize) -> bool {
        self.made.retain(|&made| now.saturating_sub(made) < SECOND);
        if self.made.len() >= most {
            return false;
        }
        self.made.push_back(now);
        true
    }
}

/// One answer may exceed the limit. Later reads then wait.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    paid_off: Duration,
}

impl Bytes {
    pub(super) fn allow(&self, now: Duration) -> bool {
        self.paid_off <= now + SECOND
    }

    /// Returns the time from which the bytes read so far are within the limit.
    pub(super) fn give(&mut self, now: Duration, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let micros = bytes.saturating_mul(1_000_000) / BYTES_PER_SECOND;
        self.paid_off = self.paid_off.max(now) + Duration::from_micros(micros);
        self.paid_off
    }
}

#[derive(Debug, Default)]
pub(super) struct Puts {
    made: VecDeque<(Duration, usize)>,
    bytes: usize,
}

impl Puts {
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

/// The limits of one answer.
pub(super) const MOST_BYTES: usize = 10 * 1024 * 1024;
pub(super) const MOST_RECORDS: u16 = 10_000;

/// The limits of one shard in any second.
pub(super) const MOST_FETCHES: usize = 5;
pub(super) const MOST_ITERATORS: usize = 5;

/// The write limits of one shard in any second.
const MOST_PUTS: usize = 1_000;
const MOST_BYTES_PUT: usize = 1024 * 1024;

const BYTES_PER_SECOND: u64 = 2 * 1024 * 1024;

const SECOND: Duration = Duration::from_secs(1);
