//! Runs a trial: injects faults into processes and servers, and ends the faults.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::ledger::{Ledger, Notices};
use super::network_faults::{NetworkFaults, Silence};
use super::plan::{ClientContext, Clocks, Contender, Faults, Model, ModelContext, Trial};
use super::simulation::{ProcessId, Simulation, WorldTime};
use super::verdict::Verdict;
use super::witness::Witness;
use crate::clock::{Clock, SkewedClock};
use crate::key::Lessee;
use crate::locker::Locker;

struct Run<M, J> {
    plan: Trial,
    simulation: Simulation,
    ledger: Ledger,
    model: M,
    job: J,
    random: StdRng,
    actors: Vec<Actor>,
}

struct Actor {
    name: Lessee,
    process: ProcessId,
    clock: Arc<SkewedClock>,
    witness: Witness,
    faults: NetworkFaults,
    ahead: Duration,
    rate: f64,
    notices: Notices,
    until: Option<(ProcessFault, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessFault {
    Paused,
    Suspended,
    Killed,
    Silenced(Silence),
}

impl Trial {
    /// Runs `job` in each contender, on the model that `model` makes.
    ///
    /// After the faults, the trial restarts each holder of a lease, as after a crash. Then each
    /// contender must obtain a lease again.
    pub fn run<M, J, F>(self, model: impl FnOnce(ModelContext) -> M, job: J) -> Verdict
    where
        M: Model,
        J: Fn(Contender<M::Store>) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Run::new(self, model, job).into_verdict()
    }
}

impl<M, J, F> Run<M, J>
where
    M: Model,
    J: Fn(Contender<M::Store>) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn new(plan: Trial, model: impl FnOnce(ModelContext) -> M, job: J) -> Self {
        let simulation = Simulation::new(plan.seed);
        let ledger = Ledger::new(simulation.time());
        let network = simulation.network().clone();
        let world = ModelContext { network, ledger: ledger.clone(), seed: plan.seed };
        let model = simulation.on_network(|| model(world));
        let random = StdRng::seed_from_u64(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut run = Self { plan, simulation, ledger, model, job, random, actors: Vec::new() };
        for number in 0..run.plan.contenders {
            let actor = run.actor(number);
            run.actors.push(actor);
        }
        run
    }

    fn into_verdict(mut self) -> Verdict {
        self.inject_faults();
        self.check_progress();
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
        let faults = NetworkFaults::new(self.random.random(), self.plan.options.ttl() * 2);
        let name = Lessee::new(format!("lessee-{number}")).expect("a name");
        self.start(name, ahead, rate, faults)
    }

    fn start(&mut self, name: Lessee, ahead: Duration, rate: f64, faults: NetworkFaults) -> Actor {
        let seed: u64 = self.random.random();
        let (job, options) = (self.job.clone(), self.plan.options.clone());
        let (ledger, model) = (&self.ledger, &mut self.model);
        let mut parts = None;
        let process = self.simulation.start(|time: WorldTime| {
            let clock = Arc::new(SkewedClock::new(ahead, rate));
            let witness = Witness::new(ledger.kept_by(time.clone()));
            parts = Some((Arc::clone(&clock), witness.clone()));
            let own_clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&clock);
            let client = ClientContext { faults: faults.clone(), clock: own_clock, time };
            let connecting = model.connect(client);
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
        Actor { name, process, clock, witness, faults, ahead, rate, notices, until: None }
    }

    fn inject_faults(&mut self) {
        let ttl = self.plan.options.ttl();
        let mut next = self.part_of(ttl);
        while self.simulation.now() < self.plan.length {
            if self.plan.faults == Faults::Random && self.simulation.now() >= next {
                self.inject_fault();
                next = self.simulation.now() + self.part_of(ttl * 2);
            }
            self.end_past_faults();
            self.step();
        }
    }

    fn inject_fault(&mut self) {
        let ttl = self.plan.options.ttl();
        let any_actor = self.random.random_range(0..self.actors.len().max(1));
        let holder = self.actors.iter().position(|actor| actor.witness.sees_any());
        let until = self.simulation.now() + self.part_of(ttl * 3);
        let silent_until = self.simulation.now() + ttl + self.part_of(ttl);
        let (fault, until) = match self.random.random_range(0..8) {
            0 | 1 => (ProcessFault::Paused, until),
            2 => (ProcessFault::Suspended, until),
            3 => (ProcessFault::Killed, until),
            4 => (ProcessFault::Silenced(Silence::RequestsLost), silent_until),
            5 => (ProcessFault::Silenced(Silence::AnswersLost), silent_until),
            _ => return self.inject_server_fault(),
        };
        let Some(actor) = self.actors.get_mut(holder.unwrap_or(any_actor)) else { return };
        if actor.until.is_some() {
            return;
        }
        let now = self.simulation.now();
        self.ledger.note_at(now, format!("{} is {fault:?} until {until:?}", actor.name));
        actor.until = Some((fault, until));
        match fault {
            ProcessFault::Paused | ProcessFault::Suspended => self.simulation.pause(actor.process),
            ProcessFault::Silenced(silence) => actor.faults.silence_heartbeats(Some(silence)),
            ProcessFault::Killed => actor.kill(&mut self.simulation),
        }
    }

    fn inject_server_fault(&mut self) {
        let (model, random) = (&mut self.model, &mut self.random);
        self.simulation.on_network(|| model.strike(random));
    }

    fn end_past_faults(&mut self) {
        let now = self.simulation.now();
        for number in 0..self.actors.len() {
            let over = |actor: &Actor| matches!(actor.until, Some((_, until)) if until <= now);
            if self.actors.get(number).is_some_and(over) {
                self.end_fault_of(number);
            }
        }
    }

    fn end_fault_of(&mut self, number: usize) {
        let Some(actor) = self.actors.get_mut(number) else { return };
        let Some((fault, _)) = actor.until.take() else { return };
        let now = self.simulation.now();
        self.ledger.note_at(now, format!("{} is no longer {fault:?}", actor.name));
        match fault {
            ProcessFault::Paused => self.simulation.resume(actor.process),
            ProcessFault::Silenced(_) => actor.faults.silence_heartbeats(None),
            ProcessFault::Suspended => {
                let slept = self.simulation.wake(actor.process);
                let within = self.plan.options.heartbeat_period() + TIMER;
                actor.notices = Notices { woken_at: now, within };
                if self.plan.clocks == Clocks::Run {
                    actor.clock.leap(slept.mul_f64(actor.rate));
                }
            }
            ProcessFault::Killed => {
                let (name, faults) = (actor.name.clone(), actor.faults.clone());
                let (ahead, rate) = (actor.ahead, actor.rate);
                let restarted = self.start(name, ahead, rate, faults);
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

    fn check_progress(&mut self) {
        let (model, ttl) = (&mut self.model, self.plan.options.ttl());
        self.simulation.on_network(|| model.heal());
        for number in 0..self.actors.len() {
            self.end_fault_of(number);
            if let Some(actor) = self.actors.get_mut(number) {
                actor.faults.stop();
                if actor.witness.sees_any() {
                    actor.kill(&mut self.simulation);
                    actor.until = Some((ProcessFault::Killed, Duration::ZERO));
                }
            }
            self.end_fault_of(number);
        }
        let healed = self.simulation.now();
        self.ledger.note_at(healed, "all faults have ended");
        let limit = healed + ttl * self.plan.patience;
        loop {
            self.step();
            let obtained = self.ledger.obtained_since(healed);
            let waits = |actor: &&Actor| obtained.iter().all(|(_, name)| *name != actor.name);
            let Some(waiting) = self.actors.iter().find(waits) else { return };
            if self.simulation.now() > limit {
                let what = format!("no progress: {} has obtained no lease", waiting.name);
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

/// tokio rounds timers up to a multiple of this resolution.
const TIMER: Duration = Duration::from_millis(1);
