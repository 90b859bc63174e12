//! What happens again and again: its first times are told in the log, then fewer and fewer, so that
//! what goes on is never quite silent. All are counted.

use std::collections::BTreeMap;

/// How often something has happened.
#[derive(Debug, Default)]
pub(crate) struct Repeats(u64);

/// The same for several things, each known by what is said of it.
#[derive(Debug, Default)]
pub(crate) struct RepeatsOfEach(BTreeMap<String, Repeats>);

/// How one more time is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    Aloud,
    /// And that the next times are told seldom.
    AloudThenSeldom,
    /// Only to those who look for everything.
    Quietly,
}

impl Repeats {
    /// It has happened once more.
    pub(crate) fn once_more(&mut self) -> Telling {
        self.0 += 1;
        let is_twice_as_many =
            self.0.is_multiple_of(ALL_TOLD) && (self.0 / ALL_TOLD).is_power_of_two();
        match self.0 {
            ..ALL_TOLD => Telling::Aloud,
            ALL_TOLD => Telling::AloudThenSeldom,
            _ if is_twice_as_many => Telling::Aloud,
            _ => Telling::Quietly,
        }
    }

    /// How often it was, where not every time was told.
    #[cfg(feature = "multilang")]
    pub(crate) fn counted(&self) -> Option<u64> {
        (self.0 > ALL_TOLD).then_some(self.0)
    }
}

impl RepeatsOfEach {
    /// `what` has happened once more. There may be no end of different things: those beyond some are
    /// counted as one.
    pub(crate) fn once_more(&mut self, what: &str) -> Telling {
        let is_new = !self.0.contains_key(what);
        let what = if is_new && self.0.len() >= MOST_APART { "" } else { what };
        self.0.entry(what.to_owned()).or_default().once_more()
    }
}

/// So many of each thing are all told; then each time that they are twice as many.
const ALL_TOLD: u64 = 10;

/// So many things are counted apart.
const MOST_APART: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_told_ten_times_then_seldom_and_no_end_of_things_is_told_to_an_end() {
        let mut repeats = RepeatsOfEach::default();
        let mut loud = |what: &str| repeats.once_more(what) != Telling::Quietly;

        let told: Vec<_> = (1..=100).filter(|_| loud("one")).collect();
        assert_eq!(told, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 40, 80]);
        assert_eq!((0..50).filter(|_| loud("another")).count(), 12);
        assert_eq!((0..5_000).filter(|number| loud(&number.to_string())).count(), 98 + 18);
    }
}
