//! Stores the keys for which several claims compete, as far as one client knows.

use std::collections::HashMap;

use lease_core::store::Moment;
use lease_core::{LeaseKey, Lessee};
use parking_lot::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Contention {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    contended: HashMap<LeaseKey, Contended>,
    purge_at: usize,
}

#[derive(Debug)]
struct Contended {
    until: Moment,
    other: Option<Lessee>,
    /// The time until which the key counts as having at least two other contenders.
    crowded_until: Moment,
    granted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contenders {
    One,
    Two {
        /// Whether this client has been granted the key since a claim of it was refused.
        granted: bool,
    },
    More,
}

impl Contention {
    pub(crate) fn contenders(&self, key: &LeaseKey, now: Moment) -> Contenders {
        match self.keys().contended.get(key).filter(|contended| contended.until > now) {
            None => Contenders::One,
            Some(contended) if contended.crowded_until > now => Contenders::More,
            Some(contended) => Contenders::Two { granted: contended.granted },
        }
    }

    pub(crate) fn refused(
        &self,
        key: &LeaseKey,
        other: Option<&Lessee>,
        until: Moment,
        now: Moment,
    ) {
        let mut keys = self.keys();
        if keys.contended.len() >= keys.purge_at {
            keys.contended.retain(|_, contended| contended.until > now);
            keys.purge_at = (keys.contended.len() * 2).max(MIN_PURGE_AT);
        }
        let earlier = keys.contended.remove(key).filter(|contended| contended.until > now);
        let (earlier_other, crowded_until) =
            earlier.map_or((None, now), |it| (it.other, it.crowded_until));
        let is_third =
            other.is_some() && earlier_other.is_some() && earlier_other.as_ref() != other;
        let contended = Contended {
            until,
            crowded_until: if is_third { until } else { crowded_until },
            other: other.cloned().or(earlier_other),
            granted: false,
        };
        keys.contended.insert(key.clone(), contended);
    }

    pub(crate) fn granted(&self, key: &LeaseKey) {
        if let Some(contended) = self.keys().contended.get_mut(key) {
            contended.granted = true;
        }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock()
    }
}

const MIN_PURGE_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_contended_until_its_entry_ends() {
        let contention = Contention::default();

        contention.refused(&key("report"), Some(&lessee("one")), at(10), at(0));

        let two = Contenders::Two { granted: false };
        assert_eq!(contention.contenders(&key("report"), at(9)), two);
        assert_eq!(contention.contenders(&key("report"), at(10)), Contenders::One);
    }

    #[test]
    fn grant_is_forgotten_once_a_claim_is_refused() {
        let contention = Contention::default();
        contention.refused(&key("report"), Some(&lessee("one")), at(10), at(0));

        contention.granted(&key("report"));
        let two = Contenders::Two { granted: true };
        assert_eq!(contention.contenders(&key("report"), at(1)), two);

        contention.refused(&key("report"), Some(&lessee("one")), at(10), at(2));
        let two = Contenders::Two { granted: false };
        assert_eq!(contention.contenders(&key("report"), at(3)), two);
    }

    #[test]
    fn key_with_two_other_lessees_is_crowded() {
        let contention = Contention::default();
        contention.refused(&key("report"), Some(&lessee("one")), at(10), at(0));

        contention.refused(&key("report"), Some(&lessee("two")), at(11), at(1));

        assert_eq!(contention.contenders(&key("report"), at(2)), Contenders::More);
        contention.refused(&key("report"), Some(&lessee("two")), at(20), at(10));
        let two = Contenders::Two { granted: false };
        assert_eq!(contention.contenders(&key("report"), at(12)), two);
    }

    #[test]
    fn contention_removes_ended_entries() {
        let contention = Contention::default();
        for number in 0..1000 {
            contention.refused(&key(&format!("job-{number}")), None, at(number + 5), at(number));
        }
        assert!(contention.keys().contended.len() <= MIN_PURGE_AT);
    }

    fn key(key: &str) -> LeaseKey {
        key.parse().unwrap()
    }

    fn lessee(name: &str) -> Lessee {
        Lessee::new(name).unwrap()
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }
}
