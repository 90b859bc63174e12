//! The clock of a server, beside that of this machine.

use std::time::{Duration, SystemTime};

use super::{Finding, Grade};

/// Compares a store's clock with that of this machine. `ahead` is negative if the store's clock is behind.
pub(super) fn compare(ahead: f64) -> Finding {
    const CHECK: &str = "clock";
    if ahead.abs() < TOLERATED {
        return Finding::ok(CHECK, "the clock of the store agrees with that of this machine");
    }
    let side = if ahead > 0.0 { "ahead of" } else { "behind" };
    Finding::bad(
        CHECK,
        Grade::Warning,
        format!("the clock of the store is {:.0} s {side} that of this machine", ahead.abs()),
        "synchronise both by NTP. Leases do not depend on it, but the first tokens of new keys do",
    )
}

/// The wall clock of this machine, in seconds since 1970.
pub(super) fn seconds_since_1970() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "compared with a store's clock, for a report")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).as_ref().map_or(0.0, Duration::as_secs_f64)
}

/// A difference of clocks below this, in seconds, may come from the network.
const TOLERATED: f64 = 5.0;
