//! The machine's clocks, and the id of its boot.

use std::fmt;
use std::time::Duration;

use lease_core::store::micros_since_1970;

use crate::error::Fault;

/// The machine on which the processes of a store run: its boot, and its clocks.
///
/// Only tests replace the machine of this process.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "public with the feature `simulation`")
)]
pub trait Machine: fmt::Debug + Send + Sync + 'static {
    /// The time since the machine booted, the same in all processes. The time advances while the machine is
    /// suspended, and no setting of the wall clock changes it.
    fn boot_time(&self) -> Duration;

    /// Names the boot. Times of different boots are not compared.
    fn boot_id(&self) -> String;

    /// The wall clock, in microseconds since 1970. Only new tokens depend on it.
    fn wall_time(&self) -> u64;
}

#[derive(Debug, Clone)]
pub(crate) struct ThisMachine {
    boot_id: String,
    /// The offset is in nanoseconds from the machine's `CLOCK_BOOTTIME`. It is zero, except in a time
    /// namespace.
    ahead: i128,
}

impl ThisMachine {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn new() -> Result<Self, Fault> {
        let path = "/proc/sys/kernel/random/boot_id";
        let boot_id = std::fs::read_to_string(path).map_err(|error| {
            Fault::misconfigured(format!("{path} cannot be read ({error}): mount /proc"))
        })?;
        // Kernels without time namespaces have no such file.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let ahead = offset_of_boottime(&offsets).unwrap_or(0);
        Ok(Self { boot_id: boot_id.trim().to_owned(), ahead })
    }

    /// Only Linux has a boot id, and a boot clock that all processes share.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn new() -> Result<Self, Fault> {
        Err(Fault::misconfigured(
            "lease-sqlite needs Linux, since it reads CLOCK_BOOTTIME and the boot id: use another store here",
        ))
    }
}

impl Machine for ThisMachine {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn boot_time(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};

        let time = clock_gettime(ClockId::Boottime);
        let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec) - self.ahead;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn boot_time(&self) -> Duration {
        Duration::ZERO
    }

    fn boot_id(&self) -> String {
        self.boot_id.clone()
    }

    fn wall_time(&self) -> u64 {
        micros_since_1970()
    }
}

/// Parses the line `boottime SECONDS NANOSECONDS`.
fn offset_of_boottime(offsets: &str) -> Option<i128> {
    let line = offsets.lines().find_map(|line| line.trim().strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i128>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(seconds * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_time_namespace_is_read() {
        let offsets = "monotonic           0         0\nboottime      -86400  500000000\n";

        assert_eq!(offset_of_boottime(offsets), Some(-86_399_500_000_000));
        assert_eq!(offset_of_boottime(""), None);
    }
}
