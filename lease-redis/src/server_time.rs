//! What time it is on a server, as far as it has told.

use std::sync::{Mutex, PoisonError};

use lease_core::Moment;

/// What a server's clock showed when it was asked.
///
/// A guess, off by as long as the request took, and by what the clocks' rates differ since: whoever is
/// told it judges whether it is near enough.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<Told>>);

#[derive(Debug, Clone, Copy)]
struct Told {
    asked: Moment,
    /// Microseconds since 1970.
    micros: u64,
}

impl ServerTime {
    /// Counted from when it was asked, so that what is proposed arrives when that time is, if requests
    /// take as long as each other.
    pub(crate) fn tell(&self, asked: Moment, micros: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Told { asked, micros });
    }

    /// In microseconds since 1970; `None` where the server has told nothing yet.
    pub(crate) fn at(&self, now: Moment) -> Option<u64> {
        let told = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let since = u64::try_from(now.since(told.asked).as_micros()).unwrap_or(u64::MAX);
        told.micros.checked_add(since)
    }
}

/// What time most servers would agree on: the one in the middle, so that no minority decides where
/// all have told theirs. Where few have, these do: each server judges what is proposed to it.
pub(crate) fn common(times: impl Iterator<Item = u64>) -> Option<u64> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_when_it_was_asked() {
        let time = ServerTime::default();
        assert_eq!(time.at(Moment::from_nanos(5_000)), None);

        time.tell(Moment::from_nanos(2_000), 1_000_000);

        assert_eq!(time.at(Moment::from_nanos(5_000)), Some(1_000_003));
    }

    #[test]
    fn a_minority_whose_clocks_are_wrong_does_not_decide() {
        assert_eq!(common([].into_iter()), None);
        assert_eq!(common([7].into_iter()), Some(7));
        assert_eq!(common([9_000, 10, 12].into_iter()), Some(12));
        assert_eq!(common([1, 10, 9_000, 12, 2].into_iter()), Some(10));
    }
}
