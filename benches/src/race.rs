//! Contestants take turns, so that other load on the machine affects all equally.

use std::pin::Pin;

/// The value of one round of a contestant. `None` if the round did not finish.
type Round<'a> = Pin<Box<dyn Future<Output = Option<f64>> + 'a>>;

/// Contestants. The first is the baseline of the ratios.
#[derive(Default)]
pub(crate) struct Race<'a> {
    contestants: Vec<(String, Box<dyn FnMut() -> Round<'a> + 'a>)>,
}

/// The results of a contestant.
pub(crate) struct Score {
    pub(crate) name: String,
    /// The value of each round.
    pub(crate) values: Vec<f64>,
    /// The ratio to the first contestant's value in the same round.
    pub(crate) ratios: Vec<f64>,
    /// The number of rounds that did not finish.
    pub(crate) failed: usize,
}

impl<'a> Race<'a> {
    pub(crate) fn enter<F>(&mut self, name: &str, mut round: impl FnMut() -> F + 'a)
    where
        F: Future<Output = Option<f64>> + 'a,
    {
        self.contestants.push((name.to_owned(), Box::new(move || Box::pin(round()))));
    }

    /// Runs `rounds` rounds of all contestants in turns, after an extra round that warms up.
    pub(crate) async fn run(mut self, rounds: usize) -> Vec<Score> {
        let names = self.contestants.iter().map(|(name, _)| name.clone());
        let mut scores: Vec<_> = names
            .map(|name| Score { name, values: Vec::new(), ratios: Vec::new(), failed: 0 })
            .collect();
        for round in 0..=rounds {
            let mut floor = None;
            for (index, (_, contestant)) in self.contestants.iter_mut().enumerate() {
                let value = contestant().await;
                if index == 0 {
                    floor = value;
                }
                let Some(score) = scores.get_mut(index).filter(|_| round > 0) else {
                    continue;
                };
                match value {
                    Some(value) => {
                        score.values.push(value);
                        score.ratios.extend(floor.map(|floor| value / floor));
                    }
                    None => score.failed += 1,
                }
            }
        }
        scores
    }
}

/// The median and the quartiles.
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Returns `None` if `values` is empty.
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
