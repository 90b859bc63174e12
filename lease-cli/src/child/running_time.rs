//! The machine's running time, which the processes of one `lease run` share. It includes suspensions.

use std::time::Duration;

use lease_core::Lease;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A point in the machine's running time, in nanoseconds since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunningTime(u64);

impl RunningTime {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Self(seconds * NANOS + u64::try_from(time.tv_nsec).unwrap_or_default())
    }

    /// When the command must be dead, `margin` before the deadline of `lease`. `None` if the lease has ended.
    pub(crate) fn limit_of(lease: &Lease, margin: Duration) -> Option<Self> {
        // Read before the remaining time, so that a pause between the two makes the limit earlier.
        let now = Self::now();
        let remaining = lease.remaining();
        lease.is_held().then(|| now.after(remaining.saturating_sub(margin)))
    }

    pub(crate) fn after(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time from now until this point; zero if it has passed.
    pub(crate) fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn timespec(self) -> Timespec {
        let part = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        Timespec { tv_sec: part(self.0 / NANOS), tv_nsec: part(self.0 % NANOS) }
    }
}

const NANOS: u64 = 1_000_000_000;
