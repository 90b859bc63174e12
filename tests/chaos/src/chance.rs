//! Random numbers from a seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The source of all random decisions of a run. A seed repeats the decisions, but not the timing of
/// the processes.
#[derive(Debug)]
pub(crate) struct Chance(StdRng);

impl Chance {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub(crate) fn seed(&mut self) -> u64 {
        self.0.random()
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end.max(1))
    }

    pub(crate) fn one_in(&mut self, count: u32) -> bool {
        self.0.random_ratio(1, count.max(1))
    }

    pub(crate) fn length(&mut self, shortest: Duration, longest: Duration) -> Duration {
        shortest + longest.saturating_sub(shortest).mul_f64(self.0.random())
    }

    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        self.length(Duration::ZERO, longest)
    }

    /// Draws in proportion to the weights. `None` if `choices` is empty.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> Option<T> {
        let all: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = self.0.random_range(0..all.max(1));
        for (weight, choice) in choices {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return Some(*choice),
            }
        }
        None
    }

    pub(crate) fn some_of(&mut self, end: usize, count: usize) -> Vec<usize> {
        let mut rest: Vec<usize> = (0..end).collect();
        let mut chosen = Vec::new();
        while chosen.len() < count && !rest.is_empty() {
            chosen.push(rest.swap_remove(self.below(rest.len())));
        }
        chosen
    }
}
