//! The start of a process, which is a part of the name of its lessee.

use std::time::SystemTime;

use lease_core::{InvalidInput, Lessee};

/// Returns a lessee with the name of `lessee` and the current time.
pub(crate) fn named_with_start(lessee: &Lessee) -> Result<Lessee, InvalidInput> {
    Lessee::new(format!("{lessee}{STARTED}{}", now()))
}

/// Returns when the process of a lessee started, if the lessee is a process of this program.
pub(crate) fn start_of(lessee: &Lessee) -> Option<&str> {
    let (_, time) = lessee.as_str().rsplit_once(STARTED)?;
    humantime::parse_rfc3339(time).ok().map(|_| time)
}

/// The wall clock, for people.
pub(crate) fn now() -> humantime::Rfc3339Timestamp {
    #[expect(clippy::disallowed_methods, reason = "a time for people, on which no lease depends")]
    let now = SystemTime::now();
    humantime::format_rfc3339_seconds(now)
}

const STARTED: &str = "@";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lessee_tells_its_start() {
        let lessee = Lessee::new("web-1-4711-0a1b2c3d@2026-11-25T21:41:36Z").unwrap();

        assert_eq!(start_of(&lessee), Some("2026-11-25T21:41:36Z"));
        assert_eq!(start_of(&Lessee::new("worker@home").unwrap()), None);
    }
}
