//! What happens again and again: its first times are told in the log, all are counted.

/// How often something has happened.
#[derive(Debug, Default)]
pub(crate) struct Repeats(u64);

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

/// Of each thing that is counted apart.
const MOST_TOLD: u64 = 10;
