//! Random trials: two lessees of ours and two candidates of client-go's leader election, modelled, on one Lease object.
//!
//! Time is the trial's own. Processes pause, writes arrive late, clocks have different rates, and people edit labels. The
//! controls break one rule each, and expect a violation. `LEASE_SEED=7` runs only the trial of seed 7, and
//! `LEASE_SEEDS=1000` runs 1000 trials.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test panics, and prints its figures"
)]

mod candidate;
mod lessee;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_test_servers::kubernetes::ApiServer;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::candidate::Candidate;
use crate::lessee::Lessee;

/// A rule that a control breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Breach {
    None,
    /// The clocks of our processes run twice as fast as those of others.
    Hasty,
    /// A write of client-go also changes our annotation, as if this crate had written the spec.
    ForgedSpec,
}

/// What happened in a trial.
#[derive(Debug, Default)]
struct Figures {
    ours: usize,
    theirs: usize,
    violation: Option<String>,
}

struct Trial {
    server: ApiServer,
    now: Duration,
    /// The time in microseconds, which our clocks read.
    clock: Arc<AtomicU64>,
    random: StdRng,
    lessees: Vec<Lessee>,
    candidates: Vec<Candidate>,
    figures: Figures,
    last_token: u64,
}

impl Trial {
    async fn new(seed: u64, breach: Breach) -> Self {
        let (server, clock) = (ApiServer::start(), Arc::new(AtomicU64::new(0)));
        let mut random = StdRng::seed_from_u64(seed);
        let mut lessees = Vec::new();
        for name in ["rust-1", "rust-2"] {
            let error = random.random_range(-0.004..0.004);
            let rate = if breach == Breach::Hasty { 2.0 } else { 1.0 + error };
            lessees.push(Lessee::new(&server, name, Arc::clone(&clock), rate).await);
        }
        let is_forged = breach == Breach::ForgedSpec;
        let candidates = ["go-1", "go-2"].map(|name| Candidate::new(name, is_forged)).into();
        let (now, figures) = (Duration::ZERO, Figures::default());
        Self { server, now, clock, random, lessees, candidates, figures, last_token: 0 }
    }

    async fn step(&mut self) {
        self.now += Duration::from_micros(self.random.random_range(20_000..400_000));
        self.clock.store(u64::try_from(self.now.as_micros()).unwrap(), Ordering::SeqCst);
        if self.random.random_bool(0.02) {
            self.edit_a_label();
        }
        let mut order = [0, 1, 2, 3];
        order.shuffle(&mut self.random);
        for actor in order {
            let pause = self
                .random
                .random_bool(0.01)
                .then(|| self.now + Duration::from_millis(self.random.random_range(500..12_000)));
            match actor {
                0 | 1 => self.step_of_ours(actor, pause).await,
                _ => self.step_of_theirs(actor - 2, pause),
            }
            self.judge();
        }
    }

    async fn step_of_ours(&mut self, place: usize, pause: Option<Duration>) {
        let granted = self.lessees[place].step(self.now, pause, &mut self.random).await;
        let Some(token) = granted else { return };
        self.figures.ours += 1;
        if token <= self.last_token {
            let text = format!("token {token} after {}", self.last_token);
            self.figures.violation.get_or_insert(text);
        }
        self.last_token = token;
    }

    fn step_of_theirs(&mut self, place: usize, pause: Option<Duration>) {
        let candidate = &mut self.candidates[place];
        if candidate.step(&self.server, self.now, pause, &mut self.random) {
            self.figures.theirs += 1;
        }
    }

    fn edit_a_label(&mut self) {
        let value = self.random.random::<u32>().to_string();
        if self.server.object(NAMESPACE, "job").is_some() {
            self.server.edit(NAMESPACE, "job", |object| {
                object["metadata"]["labels"]["team"] = value.into();
            });
        }
    }

    fn judge(&mut self) {
        let ours = self.lessees.iter().filter(|lessee| lessee.leads(self.now));
        let theirs = self.candidates.iter().filter(|candidate| candidate.leads(self.now));
        let names: Vec<_> =
            ours.map(|lessee| lessee.name).chain(theirs.map(|candidate| candidate.name)).collect();
        if names.len() > 1 {
            let text = format!("at {:?}, all of {names:?} lead", self.now);
            self.figures.violation.get_or_insert(text);
        }
    }
}

fn run(seed: u64, breach: Breach) -> Figures {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut trial = Trial::new(seed, breach).await;
        for _ in 0..STEPS {
            trial.step().await;
        }
        trial.figures
    })
}

#[test]
fn nobody_of_ours_leads_beside_another() {
    let (mut ours, mut theirs) = (0, 0);
    let seeds = seeds();
    for seed in seeds.clone() {
        let figures = run(seed, Breach::None);
        assert_eq!(figures.violation, None, "run it again with LEASE_SEED={seed}");
        ours += figures.ours;
        theirs += figures.theirs;
    }
    println!("seeds {seeds:?}: {ours} grants of ours, {theirs} terms of candidates");
    assert!(ours > 0 && theirs > 0, "both lead in turn: {ours} and {theirs}");
}

fn seeds() -> Range<u64> {
    let asked = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().unwrap());
    if let Some(seed) = asked("LEASE_SEED") {
        return seed..seed + 1;
    }
    let first = u64::from(rand::make_rng::<StdRng>().random::<u32>());
    first..first + asked("LEASE_SEEDS").unwrap_or(SEEDS)
}

#[test]
fn observation_shorter_than_the_ttl_is_detected() {
    assert!((0..FEW).any(|seed| run(seed, Breach::Hasty).violation.is_some()));
}

#[test]
fn record_whose_spec_another_program_wrote_is_detected() {
    assert!((0..FEW).any(|seed| run(seed, Breach::ForgedSpec).violation.is_some()));
}

/// Of ours and of theirs.
const TTL: Duration = Duration::from_secs(4);
const NAMESPACE: &str = "billing";
/// Of about 0.2 s.
const STEPS: usize = 600;
/// The number of trials, with new seeds in each run.
const SEEDS: u64 = 40;
/// The number of trials within which a control must find a violation.
const FEW: u64 = 20;
