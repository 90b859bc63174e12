//! A workload of yours under faults: contenders that are paused, suspended, killed and cut off,
//! in virtual time, and a verdict on what came of it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;

use super::ledger::{Event, Figures, Ledger, Violation};
use super::weather::{Silence, Weather};
use super::{ProcessId, Simulation, WorldTime};
use crate::clock::{Clock, SkewedClock};
use crate::hold::{Hold, LeaseState};
use crate::key::Lessee;
use crate::lease::Lease;
use crate::locker::Locker;
use crate::options::LeaseOptions;
use crate::store::LockStore;

/// One seed, one run: contenders on a model of a store, and everything that may befall them.
///
/// # Examples
///
/// See `examples/simulated_job.rs` for a workload of your own.
#[derive(Debug, Clone)]
#[must_use = "a trial does nothing until it runs"]
pub struct Trial {
    seed: u64,
    contenders: usize,
    options: LeaseOptions,
    length: Duration,
    clock_rates: f64,
    clocks: Clocks,
    patience: u32,
}

/// Whether the clocks of contenders go on while their machine is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clocks {
    GoOn,
    Stop,
}

/// What contenders share: one store, or the servers that make up one.
pub trait Model {
    /// What a contender reaches it by.
    type Store: LockStore;

    /// Connects a contender. Called in its process, and at each of its starts.
    fn connect(&mut self, newcomer: Newcomer) -> BoxFuture<'static, Self::Store>;

    /// Lets something befall the servers themselves, as `random` has it, and notes it in the
    /// ledger.
    fn strike(&mut self, random: &mut StdRng) {
        let _ = random;
    }

    /// Ends all that befell the servers.
    fn heal(&mut self) {}

    /// Called after each step.
    fn step(&mut self) {}
}

/// A process that has just started, as its way to the model knows it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Newcomer {
    /// What its requests suffer from.
    pub weather: Weather,
    /// The clock that it goes by, for stores that read one.
    pub clock: Arc<dyn Clock>,
    /// The true time, as told inside it.
    pub time: WorldTime,
}

/// Where the model of a trial lives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct World {
    /// Where requests travel and servers run, beside all contenders.
    pub network: Handle,
    /// Where grants and writes are noted, by the world's time on the network.
    pub ledger: Ledger,
    /// All chance in the model follows from it.
    pub seed: u64,
}

/// One process that contends for leases, from its start to its end.
#[non_exhaustive]
pub struct Contender<S> {
    /// Its locker, on `store`.
    pub locker: Locker,
    /// Its way to the model: for tables, and for requests made by hand.
    pub store: Arc<S>,
    /// Whoever obtains a lease shows it to the witness.
    pub witness: Witness,
    /// For choices that are to be made again in the same way.
    pub seed: u64,
}

/// Sees for how long leases say that they are held, and when their loss is told.
#[derive(Clone)]
pub struct Witness {
    ledger: Ledger,
    seen: Arc<Mutex<Seen>>,
}

/// Leases that go on, and the tenures that they are in the ledger.
type Seen = Vec<(usize, Arc<Hold>)>;

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Its seed: with the same, all of it happens again.
    pub seed: u64,
    /// The promises that were broken, in order.
    pub violations: Vec<Violation>,
    /// All that happened, in order.
    pub trace: Vec<Event>,
    /// How often what happened.
    pub figures: Figures,
}

impl Trial {
    /// Three contenders with leases of 200 ms, for 1.6 seconds of trouble; clocks that are hours
    /// apart and whose rates differ by half of what the options assume.
    pub fn new(seed: u64) -> Self {
        let ttl = Duration::from_millis(200);
        Self {
            seed,
            contenders: 3,
            options: LeaseOptions::of(ttl),
            length: ttl * 8,
            clock_rates: 0.005,
            clocks: Clocks::GoOn,
            patience: 100,
        }
    }

    /// Starts `contenders` processes.
    pub fn with_contenders(mut self, contenders: usize) -> Self {
        self.contenders = contenders;
        self
    }

    /// Gives all lockers `options`; trouble lasts as long as 8 of its ttls.
    pub fn with_options(mut self, options: LeaseOptions) -> Self {
        self.length = options.ttl() * 8;
        self.options = options;
        self
    }

    /// Makes trouble for `length`.
    pub fn with_length(mut self, length: Duration) -> Self {
        self.length = length;
        self
    }

    /// Lets the clocks of contenders be fast or slow by up to `error`, as a part of the rate.
    ///
    /// More than the options assume, and two may hold one key: the control that shows that a
    /// trial would notice.
    pub fn with_clock_rates(mut self, error: f64) -> Self {
        self.clock_rates = error;
        self
    }

    /// Lets the clocks of contenders stop while their machine is suspended: another control.
    pub fn with_clocks_that_stop(mut self) -> Self {
        self.clocks = Clocks::Stop;
        self
    }

    /// After the trouble, gives every contender `ttls` times the ttl to obtain a lease. By
    /// default 100: nothing promises turns across processes.
    pub fn with_patience(mut self, ttls: u32) -> Self {
        self.patience = ttls;
        self
    }

    /// Runs `job` in every contender, over the model that `model` makes in the world.
    ///
    /// When the trouble is over, whoever holds a lease is killed, all else is healed, and every
    /// contender has to obtain one again.
    pub fn run<M, J, F>(self, model: impl FnOnce(World) -> M, job: J) -> Verdict
    where
        M: Model,
        J: Fn(Contender<M::Store>) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let simulation = Simulation::new(self.seed);
        let ledger = Ledger::new(simulation.time());
        let network = simulation.network().clone();
        let world = World { network, ledger: ledger.clone(), seed: self.seed };
        let model = simulation.on_network(|| model(world));
        let random = StdRng::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut run =
            Run { plan: self, simulation, ledger, model, job, random, actors: Vec::new() };
        for number in 0..run.plan.contenders {
            let actor = run.actor(number);
            run.actors.push(actor);
        }
        run.make_trouble();
        run.see_progress();
        Verdict {
            seed: run.plan.seed,
            violations: run.ledger.violations(),
            trace: run.ledger.trace(),
            figures: run.ledger.figures(),
        }
    }
}

/// A trial while it runs.
struct Run<M, J> {
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

/// By when a process has to have noticed that a deadline has passed. That takes a timer; those of
/// a suspended machine have stood still, so after waking up leases look at the clock again within
/// a heartbeat period, and whenever they are asked or polled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notices {
    pub(super) woken_at: Duration,
    pub(super) within: Duration,
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
            let witness = Witness { ledger: ledger.kept_by(time.clone()), seen: Arc::default() };
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
            if self.simulation.now() >= next {
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

impl Witness {
    /// Follows `lease` to its end. Call it as soon as you have it.
    pub fn watch(&self, lease: &Lease) {
        let hold = Arc::clone(&lease.hold);
        let tenure = self.ledger.begin(&hold.grant);
        let mut state = hold.state();
        self.seen().push((tenure, hold));
        let ledger = self.ledger.clone();
        tokio::spawn(async move {
            let lost = |state: &LeaseState| matches!(state, LeaseState::Lost(_));
            if state.wait_for(lost).await.is_ok() {
                ledger.told(tenure);
            }
        });
    }

    /// The trial's notebook, by the time of this process.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn sees_any(&self) -> bool {
        !self.seen().is_empty()
    }

    /// Looks at all leases that go on; called in their process.
    fn look(&self, notices: Notices) {
        self.seen().retain(|(tenure, hold)| self.ledger.look_at(*tenure, hold, notices));
    }

    fn killed(&self) {
        for (tenure, _) in self.seen().drain(..) {
            self.ledger.killed(tenure);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Verdict {
    /// The last `events` events before the first violation, and the violations.
    pub fn report(&self, events: usize) -> String {
        let first = self.violations.first().map_or(Duration::MAX, |violation| violation.at);
        let end = self.trace.partition_point(|event| event.at <= first);
        let start = end.saturating_sub(events);
        let events = self.trace.get(start..end).unwrap_or_default().iter().map(Event::to_string);
        let broken = |violation: &Violation| format!("{violation}   <-- VIOLATION");
        let lines = events.chain(self.violations.iter().map(broken));
        std::iter::once(format!("seed {}", self.seed)).chain(lines).collect::<Vec<_>>().join("\n")
    }
}

/// What tokio's timers are rounded up to.
const TIMER: Duration = Duration::from_millis(1);

impl<S> fmt::Debug for Contender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("locker", &self.locker).finish_non_exhaustive()
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}
