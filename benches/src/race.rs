//! Contestants that take turns, so that all have the same neighbours on the machine.

use std::pin::Pin;

/// What one round of a contestant comes to: larger is better, or smaller, as the scenario has it.
/// `None` where it did not get to the end.
type Round<'a> = Pin<Box<dyn Future<Output = Option<f64>> + 'a>>;

/// Contestants, of which the first is what the others are measured by.
#[derive(Default)]
pub(crate) struct Race<'a> {
    contestants: Vec<(String, Box<dyn FnMut() -> Round<'a> + 'a>)>,
}

/// How a contestant did.
pub(crate) struct Standing {
    pub(crate) name: String,
    /// Of each round.
    pub(crate) values: Vec<f64>,
    /// To the first contestant's in the same round.
    pub(crate) ratios: Vec<f64>,
    /// Rounds without an end.
    pub(crate) failed: usize,
}

impl<'a> Race<'a> {
    pub(crate) fn enter<F>(&mut self, name: &str, mut round: impl FnMut() -> F + 'a)
    where
        F: Future<Output = Option<f64>> + 'a,
    {
        self.contestants.push((name.to_owned(), Box::new(move || Box::pin(round()))));
    }

    /// Runs `rounds` of each, in turns; a first round is for warming up, and does not count.
    pub(crate) async fn run(mut self, rounds: usize) -> Vec<Standing> {
        let names = self.contestants.iter().map(|(name, _)| name.clone());
        let mut standings: Vec<_> = names
            .map(|name| Standing { name, values: Vec::new(), ratios: Vec::new(), failed: 0 })
            .collect();
        for round in 0..=rounds {
            let mut floor = None;
            for (place, (_, contestant)) in self.contestants.iter_mut().enumerate() {
                let value = contestant().await;
                if place == 0 {
                    floor = value;
                }
                let Some(standing) = standings.get_mut(place).filter(|_| round > 0) else {
                    continue;
                };
                match value {
                    Some(value) => {
                        standing.values.push(value);
                        standing.ratios.extend(floor.map(|floor| value / floor));
                    }
                    None => standing.failed += 1,
                }
            }
        }
        standings
    }
}

/// The middle, and the quarters below and above.
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: usize| sorted.get((sorted.len() - 1) * part / 4).copied();
        if sorted.is_empty() {
            return None;
        }
        Some(Self { low: at(1)?, median: at(2)?, high: at(3)? })
    }
}
