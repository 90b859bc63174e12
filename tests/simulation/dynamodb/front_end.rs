//! A front end of DynamoDB: its wall clock and its faults.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// The start of the simulated time, in seconds since 1970: far from the present, so that the model
/// recognizes a time of the real machine.
pub(crate) const WORLD_BEGINS: Duration = Duration::from_secs(4_000_000_000);

#[derive(Debug)]
pub(crate) struct FrontEnd {
    ahead: Duration,
    fault: Option<(FrontEndFault, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrontEndFault {
    Throttles,
    Fails,
    FailsAfterwards,
    Hangs,
}

impl FrontEnd {
    pub(crate) fn new(apart: Duration, random: &mut StdRng) -> Self {
        let mut front_end = Self { ahead: Duration::ZERO, fault: None };
        front_end.set_clock(apart, random);
        front_end
    }

    /// The clocks of two front ends differ by `apart` at most.
    pub(crate) fn set_clock(&mut self, apart: Duration, random: &mut StdRng) {
        self.ahead = apart.mul_f64(random.random_range(0.0..=1.0));
    }

    pub(crate) fn inject(&mut self, fault: FrontEndFault, until: Duration) {
        self.fault = Some((fault, until));
    }

    pub(crate) fn heal(&mut self) {
        self.fault = None;
    }

    pub(crate) fn fault(&self, now: Duration) -> Option<FrontEndFault> {
        self.fault.and_then(|(fault, until)| (now < until).then_some(fault))
    }

    pub(crate) fn date(&self, now: Duration) -> u64 {
        (WORLD_BEGINS + now + self.ahead).as_secs()
    }
}

impl FrontEndFault {
    pub(crate) fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..4) {
            0 => Self::Throttles,
            1 => Self::Fails,
            2 => Self::FailsAfterwards,
            _ => Self::Hangs,
        }
    }
}
