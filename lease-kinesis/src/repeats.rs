//! What happens again and again: its first times are told in the log, all are counted.

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
    /// And that nothing more is told.
    AloudForTheLastTime,
    /// Only to those who look for everything.
    Quietly,
}

impl Repeats {
    /// It has happened once more.
    pub(crate) fn once_more(&mut self) -> Telling {
        self.0 += 1;
        match self.0 {
            ..MOST_TOLD => Telling::Aloud,
            MOST_TOLD => Telling::AloudForTheLastTime,
            _ => Telling::Quietly,
        }
    }

    /// How often it was, where not every time was told.
    #[cfg(feature = "multilang")]
    pub(crate) fn counted(&self) -> Option<u64> {
        (self.0 > MOST_TOLD).then_some(self.0)
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

/// Of each thing that is counted apart.
const MOST_TOLD: u64 = 10;

/// So many things are counted apart.
const MOST_APART: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_told_ten_times_and_no_end_of_things_is_told_to_an_end() {
        let mut repeats = RepeatsOfEach::default();
        let mut loud = |what: &str| repeats.once_more(what) != Telling::Quietly;

        assert_eq!((0..50).filter(|_| loud("one")).count(), 10);
        assert_eq!((0..50).filter(|_| loud("another")).count(), 10);
        assert_eq!((0..5_000).filter(|number| loud(&number.to_string())).count(), 98 + 10);
    }
}
