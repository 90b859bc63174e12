//! Runs a trial for many seeds, and reports the first failure.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use super::ledger::{Figures, Violation};
use super::verdict::Verdict;

/// A range of seeds, one trial each.
///
/// `LEASE_SEED=7` runs only the trial of seed 7, and `LEASE_SEEDS=100000` runs 100,000 trials. The
/// report of a failed trial has the last 60 events before the violation; `LEASE_EVENTS=500` prints
/// 500.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedRange {
    seeds: Range<u64>,
    deferred: u64,
}

/// The result of many trials.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The seeds of the trials.
    pub seeds: Range<u64>,
    /// The figures of all trials, added up.
    pub figures: Figures,
    /// The number of trials in which a former holder's process ran between its deadline and the next grant.
    pub with_notified_losers: usize,
}

impl SeedRange {
    /// Returns `count` successive seeds from a random seed. `LEASE_SEEDS` changes the count, and
    /// `LEASE_SEED` selects one seed.
    ///
    /// # Panics
    ///
    /// If the environment variable is not a number.
    pub fn fresh(count: u64) -> Self {
        let first = match asked("LEASE_SEED") {
            Some(seed) => return Self { seeds: seed..seed + 1, deferred: 0 },
            None => u64::from(rand::make_rng::<StdRng>().next_u32()) * 1_000_000,
        };
        let count = asked("LEASE_SEEDS").unwrap_or(count);
        Self { seeds: first..first + count, deferred: 0 }
    }

    /// Returns the seeds from 0 to `count`. Ignores the environment.
    pub fn first(count: u64) -> Self {
        Self { seeds: 0..count, deferred: 0 }
    }

    /// Starts with `seed`, which is known to find a rare violation. The smaller seeds come last.
    #[must_use]
    pub fn starting_with(self, seed: u64) -> Self {
        let count = self.seeds.end - self.seeds.start;
        let deferred = seed.saturating_sub(self.seeds.start).min(count);
        Self { deferred, ..self }
    }

    /// Runs `trial` with each seed, on all processors, and adds up the figures.
    ///
    /// # Panics
    ///
    /// If a promise is broken. The message has the trial's events, and the command that repeats the trial.
    #[expect(clippy::panic, reason = "a test that fails")]
    pub fn all_hold(self, trial: impl Fn(u64) -> Verdict + Sync) -> Survey {
        let survey = Mutex::new(Survey {
            seeds: self.seeds.clone(),
            figures: Figures::default(),
            with_notified_losers: 0,
        });
        let failed = self.until(|seed| {
            let verdict = trial(seed);
            if verdict.violations.is_empty() {
                let mut survey = survey.lock();
                survey.figures += verdict.figures;
                survey.with_notified_losers += usize::from(verdict.figures.notified_first > 0);
                return None;
            }
            Some(verdict)
        });
        if let Some((seed, verdict)) = failed {
            let events = asked("LEASE_EVENTS").and_then(|count| usize::try_from(count).ok());
            let events = events.unwrap_or(60);
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            panic!(
                "a promise is broken; run it again with\n  LEASE_SEED={seed} cargo test {test}\n{}",
                verdict.report(events)
            );
        }
        survey.into_inner()
    }

    /// Runs `trial` until a promise is broken, as a negative control. Returns the seed and the
    /// first violation.
    pub fn find_violation(self, trial: impl Fn(u64) -> Verdict + Sync) -> Option<(u64, Violation)> {
        self.until(|seed| trial(seed).violations.into_iter().next())
    }

    fn until<T: Send>(self, run: impl Fn(u64) -> Option<T> + Sync) -> Option<(u64, T)> {
        let Self { seeds: Range { start, end }, deferred } = self;
        let seed_at = |place: u64| match start + deferred + place {
            seed if seed < end => seed,
            seed => seed - (end - start),
        };
        let (next, last) = (AtomicU64::new(0), AtomicU64::new(end - start));
        let found: Mutex<Option<(u64, T)>> = Mutex::new(None);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::SeqCst);
                        if place >= last.load(Ordering::SeqCst) {
                            return;
                        }
                        let Some(result) = run(seed_at(place)) else { continue };
                        last.fetch_min(place, Ordering::SeqCst);
                        let mut found = found.lock();
                        if found.as_ref().is_none_or(|(earlier, _)| place < *earlier) {
                            *found = Some((place, result));
                        }
                    }
                });
            }
        });
        let found = found.into_inner();
        found.map(|(place, result)| (seed_at(place), result))
    }
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.tenures += other.tenures;
        self.takeovers += other.takeovers;
        self.notified_first += other.notified_first;
        self.writes += other.writes;
    }
}

#[expect(clippy::panic, reason = "a test with invalid settings fails")]
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no whole number")))
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seeds, figures) = (&self.seeds, &self.figures);
        let count = seeds.end - seeds.start;
        write!(
            f,
            "{count} trials from seed {}: {} leases, {} take-overs without a release; in {} trials, \
             the former holder was notified before the take-over; {} writes under leases",
            seeds.start,
            figures.tenures,
            figures.takeovers,
            self.with_notified_losers,
            figures.writes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::SeedRange;

    #[test]
    fn range_starts_with_given_seed_and_wraps_around() {
        for (start, expected) in [(0, 3), (3, 3), (4, 7), (8, 3), (10, 3), (1000, 3)] {
            let seeds = SeedRange::first(10).starting_with(start);

            let found = seeds.until(|seed| [3, 7].contains(&seed).then_some(()));

            assert_eq!(found, Some((expected, ())), "from {start}");
        }
        assert_eq!(SeedRange::first(10).starting_with(4).until(|_| None::<()>), None);
    }
}
