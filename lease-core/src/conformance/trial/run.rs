//! A trial while it runs: what befalls whom, and when it ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::ledger::Ledger;
use super::trial::{Clocks, Contender, Faults, Model, Newcomer, Trial, World};
use super::verdict::Verdict;
use super::weather::{Silence, Weather};
use super::witness::{Notices, Witness};
use super::{ProcessId, Simulation, WorldTime};
use crate::clock::{Clock, SkewedClock};
use crate::key::Lessee;
use crate::locker::Locker;

/// A trial while it runs.
pub(super) struct Run<M, J> {
    plan: Trial,
    simulation: Simulation,
    ledger: Ledger,
    model: M,
    job: J,
    random: StdRng,
    actors: Vec<Actor>,
}

/// A contender as the simulation sees it.
struct Actor {
    name: Lessee,
    process: ProcessId,
    clock: Arc<SkewedClock>,
    witness: Witness,
    weather: Weather,
    ahead: Duration,
    rate: f64,
    notices: Notices,
    /// What befell it, and when it ends.
    until: Option<(Trouble, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Paused,
    Suspended,
    Killed,
    Silenced(Silence),
}

impl<M, J, F> Run<M, J>
where
    M: Model,
    J: Fn(Contender<M::Store>) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    /// Starts all of `plan`'s contenders over the model that `model` makes in the world.
    pub(super) fn new(plan: Trial, model: impl FnOnce(World) -> M, job: J) -> Self {
        let simulation = Simulation::new(plan.seed);
        let ledger = Ledger::new(simulation.time());
        let network = simulation.network().clone();
        let world = World { network, ledger: ledger.clone(), seed: plan.seed };
        let model = simulation.on_network(|| model(world));
        let random = StdRng::seed_from_u64(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut run = Self { plan, simulation, ledger, model, job, random, actors: Vec::new() };
        for number in 0..run.plan.contenders {
            let actor = run.actor(number);
            run.actors.push(actor);
        }
        run
    }

    /// Goes through all of it.
    pub(super) fn into_verdict(mut self) -> Verdict {
        self.make_trouble();
        self.see_progress();
        Verdict {
            seed: self.plan.seed,
            violations: self.ledger.violations(),
            trace: self.ledger.trace(),
            figures: self.ledger.figures(),
        }
    }

    #[expect(clippy::expect_used, reason = "the name is valid")]
    fn actor(&mut self, number: usize) -> Actor {
        let error = self.plan.clock_rates;
        let rate = 1.0 + self.random.random_range(-error..=error);
        let ahead = Duration::from_secs(self.random.random_range(0..7200));
        let weather = Weather::new(self.random.random(), self.plan.options.ttl() * 2);
        let name = Lessee::new(format!("lessee-{number}")).expect("a name");
        self.start(name, ahead, rate, weather)
    }

    fn start(&mut self, name: Lessee, ahead: Duration, rate: f64, weather: Weather) -> Actor {
        let seed: u64 = self.random.random();
        let (job, options) = (self.job.clone(), self.plan.options.clone());
        let (ledger, model) = (&self.ledger, &mut self.model);
        let mut parts = None;
        let process = self.simulation.start(|time: WorldTime| {
            let clock = Arc::new(SkewedClock::new(ahead, rate));
            let witness = Witness::new(ledger.kept_by(time.clone()));
            parts = Some((Arc::clone(&clock), witness.clone()));
            let own_clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&clock);
            let newcomer = Newcomer { weather: weather.clone(), clock: own_clock, time };
            let connecting = model.connect(newcomer);
            let name = name.clone();
            async move {
                let store = Arc::new(connecting.await);
                let locker = Locker::new(Arc::clone(&store))
                    .with_lessee(name)
                    .with_options(options)
                    .with_clock(clock)
                    .with_seed(seed);
                job(Contender { locker, store, witness, seed }).await;
            }
        });
        #[expect(clippy::expect_used, reason = "`start` has called its `main`")]
        let (clock, witness) = parts.expect("the parts of a process that has started");
        let notices = Notices { woken_at: Duration::ZERO, within: TIMER };
        Actor { name, process, clock, witness, weather, ahead, rate, notices, until: None }
    }

    fn make_trouble(&mut self) {
        let ttl = self.plan.options.ttl();
        let mut next = self.part_of(ttl);
        while self.simulation.now() < self.plan.length {
            if self.plan.faults == Faults::Random && self.simulation.now() >= next {
                self.strike();
                next = self.simulation.now() + self.part_of(ttl * 2);
            }
            self.end_what_is_over();
            self.step();
        }
    }

    /// Something happens to whoever holds a lease, or else to anybody; or to the servers.
    fn strike(&mut self) {
        let ttl = self.plan.options.ttl();
        let anybody = self.random.random_range(0..self.actors.len().max(1));
        let holder = self.actors.iter().position(|actor| actor.witness.sees_any());
        let until = self.simulation.now() + self.part_of(ttl * 3);
        let silent_until = self.simulation.now() + ttl + self.part_of(ttl);
        let (trouble, until) = match self.random.random_range(0..8) {
            0 | 1 => (Trouble::Paused, until),
            2 => (Trouble::Suspended, until),
            3 => (Trouble::Killed, until),
            4 => (Trouble::Silenced(Silence::NotHeard), silent_until),
            5 => (Trouble::Silenced(Silence::NotAnswered), silent_until),
            _ => return self.strike_servers(),
        };
        let Some(actor) = self.actors.get_mut(holder.unwrap_or(anybody)) else { return };
        if actor.until.is_some() {
            return;
        }
        let now = self.simulation.now();
        self.ledger.note_at(now, format!("{} is {trouble:?} until {until:?}", actor.name));
        actor.until = Some((trouble, until));
        match trouble {
            Trouble::Paused | Trouble::Suspended => self.simulation.pause(actor.process),
            Trouble::Silenced(silence) => actor.weather.silence(Some(silence)),
            Trouble::Killed => actor.kill(&mut self.simulation),
        }
    }

    fn strike_servers(&mut self) {
        let (model, random) = (&mut self.model, &mut self.random);
        self.simulation.on_network(|| model.strike(random));
    }

    fn end_what_is_over(&mut self) {
        let now = self.simulation.now();
        for number in 0..self.actors.len() {
            let over = |actor: &Actor| matches!(actor.until, Some((_, until)) if until <= now);
            if self.actors.get(number).is_some_and(over) {
                self.end_trouble_of(number);
            }
        }
    }

    fn end_trouble_of(&mut self, number: usize) {
        let Some(actor) = self.actors.get_mut(number) else { return };
        let Some((trouble, _)) = actor.until.take() else { return };
        let now = self.simulation.now();
        self.ledger.note_at(now, format!("{} is {trouble:?} no longer", actor.name));
        match trouble {
            Trouble::Paused => self.simulation.resume(actor.process),
            Trouble::Silenced(_) => actor.weather.silence(None),
            Trouble::Suspended => {
                let slept = self.simulation.wake(actor.process);
                let within = self.plan.options.heartbeat_period() + TIMER;
                actor.notices = Notices { woken_at: now, within };
                if self.plan.clocks == Clocks::GoOn {
                    actor.clock.leap(slept.mul_f64(actor.rate));
                }
            }
            Trouble::Killed => {
                let (name, weather) = (actor.name.clone(), actor.weather.clone());
                let (ahead, rate) = (actor.ahead, actor.rate);
                let restarted = self.start(name, ahead, rate, weather);
                if let Some(actor) = self.actors.get_mut(number) {
                    *actor = restarted;
                }
            }
        }
    }

    fn step(&mut self) {
        self.simulation.step();
        let model = &mut self.model;
        self.simulation.on_network(|| model.step());
        for actor in &self.actors {
            if self.simulation.runs(actor.process) {
                self.simulation.look_into(actor.process, || actor.witness.look(actor.notices));
            }
        }
    }

    /// All is well again, but whoever holds a lease has crashed: everybody has to get on.
    fn see_progress(&mut self) {
        let (model, ttl) = (&mut self.model, self.plan.options.ttl());
        self.simulation.on_network(|| model.heal());
        for number in 0..self.actors.len() {
            self.end_trouble_of(number);
            if let Some(actor) = self.actors.get_mut(number) {
                actor.weather.clear();
                if actor.witness.sees_any() {
                    actor.kill(&mut self.simulation);
                    actor.until = Some((Trouble::Killed, Duration::ZERO));
                }
            }
            self.end_trouble_of(number);
        }
        let healed = self.simulation.now();
        self.ledger.note_at(healed, "all is healed");
        let limit = healed + ttl * self.plan.patience;
        loop {
            self.step();
            let obtained = self.ledger.obtained_since(healed);
            let waits = |actor: &&Actor| obtained.iter().all(|(_, name)| *name != actor.name);
            let Some(waiting) = self.actors.iter().find(waits) else { return };
            if self.simulation.now() > limit {
                let what = format!("no progress: {} has obtained nothing", waiting.name);
                let what = format!("{what} for {:?}", ttl * self.plan.patience);
                self.ledger.violated_at(self.simulation.now(), what);
                return;
            }
        }
    }

    fn part_of(&mut self, length: Duration) -> Duration {
        length.mul_f64(self.random.random_range(0.0..1.0))
    }
}

impl Actor {
    fn kill(&self, simulation: &mut Simulation) {
        self.witness.killed();
        simulation.kill(self.process);
    }
}

/// What tokio's timers are rounded up to.
const TIMER: Duration = Duration::from_millis(1);
