//! A front end: its own wall clock, and what befalls it.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// When the world begins, in seconds since 1970. Far from the present, so that whatever was read
/// from the wall clock of the machine that runs the trial is told from it.
pub(crate) const WORLD_BEGINS: Duration = Duration::from_secs(4_000_000_000);

#[derive(Debug)]
pub(crate) struct FrontEnd {
    ahead: Duration,
    trouble: Option<(Trouble, Duration)>,
}

/// What befalls all requests at a front end for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Throttles,
    Fails,
    /// It says that it failed, and did not.
    FailsAfterwards,
    Hangs,
}

impl FrontEnd {
    pub(crate) fn new(apart: Duration, random: &mut StdRng) -> Self {
        let mut front_end = Self { ahead: Duration::ZERO, trouble: None };
        front_end.set_clock(apart, random);
        front_end
    }

    /// Sets its clock anew, `apart` from any other's at the most.
    pub(crate) fn set_clock(&mut self, apart: Duration, random: &mut StdRng) {
        self.ahead = apart.mul_f64(random.random_range(0.0..=1.0));
    }

    pub(crate) fn suffer(&mut self, trouble: Trouble, until: Duration) {
        self.trouble = Some((trouble, until));
    }

    pub(crate) fn heal(&mut self) {
        self.trouble = None;
    }

    pub(crate) fn trouble(&self, now: Duration) -> Option<Trouble> {
        self.trouble.and_then(|(trouble, until)| (now < until).then_some(trouble))
    }

    /// Whole seconds since 1970, as in its answers.
    pub(crate) fn date(&self, now: Duration) -> u64 {
        (WORLD_BEGINS + now + self.ahead).as_secs()
    }
}

impl Trouble {
    pub(crate) fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..4) {
            0 => Self::Throttles,
            1 => Self::Fails,
            2 => Self::FailsAfterwards,
            _ => Self::Hangs,
        }
    }
}
