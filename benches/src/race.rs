//! Contestants take turns, so that other load on the machine affects all contestants equally.

use std::pin::Pin;

/// `None` if the round did not finish.
type Round<'a, const VALUES: usize> = Pin<Box<dyn Future<Output = Option<[f64; VALUES]>> + 'a>>;

/// The first contestant is the baseline of the ratios. Each round returns `VALUES` values.
pub(crate) struct Race<'a, const VALUES: usize = 1> {
    contestants: Vec<(String, Box<dyn FnMut() -> Round<'a, VALUES> + 'a>)>,
}

pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
    /// The ratio of each value to the first contestant's value in the same round.
    pub(crate) ratios: Vec<f64>,
    pub(crate) failed: usize,
}

impl<const VALUES: usize> Default for Race<'_, VALUES> {
    fn default() -> Self {
        Self { contestants: Vec::new() }
    }
}

impl<'a> Race<'a> {
    pub(crate) fn enter<F>(&mut self, name: &str, mut round: impl FnMut() -> F + 'a)
    where
        F: Future<Output = Option<f64>> + 'a,
    {
        self.enter_several(name, move || {
            let round = round();
            async move { Some([round.await?]) }
        });
    }

    /// After a round to warm up, all contestants take turns in `rounds` rounds.
    pub(crate) async fn run(self, rounds: usize) -> Vec<Score> {
        let [scores] = self.run_several(rounds).await;
        scores
    }
}

impl<'a, const VALUES: usize> Race<'a, VALUES> {
    /// Like [`enter`](Race::enter), but each round returns several values.
    pub(crate) fn enter_several<F>(&mut self, name: &str, mut round: impl FnMut() -> F + 'a)
    where
        F: Future<Output = Option<[f64; VALUES]>> + 'a,
    {
        self.contestants.push((name.to_owned(), Box::new(move || Box::pin(round()))));
    }

    /// Like [`run`](Race::run). Returns the scores of all contestants for each value.
    pub(crate) async fn run_several(mut self, rounds: usize) -> [Vec<Score>; VALUES] {
        let mut results: Vec<Vec<Option<[f64; VALUES]>>> = vec![Vec::new(); self.contestants.len()];
        for round in 0..=rounds {
            for ((_, contestant), results) in self.contestants.iter_mut().zip(&mut results) {
                let values = contestant().await;
                if round > 0 {
                    results.push(values);
                }
            }
        }
        std::array::from_fn(|value| {
            let of_value = |rounds: &Vec<Option<[f64; VALUES]>>| -> Vec<Option<f64>> {
                rounds.iter().map(|values| values.map(|values| values[value])).collect()
            };
            let names = self.contestants.iter().map(|(name, _)| name);
            let scores = names
                .zip(&results)
                .map(|(name, rounds)| Score::new(name, &of_value(rounds), &of_value(&results[0])));
            scores.collect()
        })
    }
}

impl Score {
    pub(crate) fn new(name: &str, rounds: &[Option<f64>], first: &[Option<f64>]) -> Self {
        let both =
            rounds.iter().zip(first).filter_map(|(value, first)| Some((*value)? / (*first)?));
        Self {
            name: name.to_owned(),
            values: rounds.iter().flatten().copied().collect(),
            ratios: both.collect(),
            failed: rounds.iter().filter(|value| value.is_none()).count(),
        }
    }
}

pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
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
