//! Random schedules of faults and pauses: a lease never says that it is held once a successor
//! has been granted the key, and a loss is told first wherever the process ran in time.
//!
//! Time is virtual, so thousands of schedules take seconds. A failing seed is printed; run it
//! alone with `LEASE_SEED=… cargo test -p lease-tests --test schedules -- --nocapture`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty, ProcessId, Simulation};
use lease_core::{
    Beat, BootClock, Claim, Clock, Freed, Grant, HandOver, Handed, Heartbeat, Holder, Lease,
    LeaseKey, LeaseOptions, Lessee, LockStore, Locker, Moment, Obtained, SkewedClock, StoreError,
};
use lease_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const TTL: Duration = Duration::from_millis(200);
const LESSEES: usize = 3;
/// How long a schedule lasts before it is left alone to end.
const LENGTH: Duration = Duration::from_millis(1600);

/// How much the clock of a lessee may be off: what the options assume is 1 %.
#[derive(Clone, Copy)]
struct Skew(f64);

#[test]
fn no_lease_says_held_once_a_successor_has_the_key() {
    let seeds: Vec<u64> = match std::env::var("LEASE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..10_000).collect(),
    };
    let polled = AtomicUsize::new(0);
    let takeovers = AtomicUsize::new(0);

    in_parallel(&seeds, |seed| {
        let verdict = Schedule::new(seed, Skew(0.005)).run();
        assert!(verdict.violations.is_empty(), "seed {seed}: {:#?}", verdict.violations);
        polled.fetch_add(usize::from(verdict.polled > 0), Ordering::Relaxed);
        takeovers.fetch_add(verdict.takeovers, Ordering::Relaxed);
    });

    let (polled, count) = (polled.into_inner(), seeds.len());
    println!(
        "{count} schedules, {} take-overs of a lease that was not given back; in {polled} \
         schedules ({} %) the loser ran between its deadline and the take-over, and was told first",
        takeovers.into_inner(),
        polled * 100 / count,
    );
    assert!(count < 100 || polled * 2 > count, "too few schedules show that a loss is told");
}

/// The negative control: clocks that run ten times further apart than the options assume.
#[test]
fn clocks_that_break_the_assumption_are_caught() {
    let caught = AtomicUsize::new(0);

    in_parallel(&(0..100).collect::<Vec<_>>(), |seed| {
        let verdict = Schedule::new(seed, Skew(0.1)).run();
        caught.fetch_add(usize::from(!verdict.violations.is_empty()), Ordering::Relaxed);
    });

    let caught = caught.into_inner();
    println!("clocks 10 % off: {caught} of 100 schedules violate");
    assert!(caught > 0, "the checker would not have noticed");
}

/// One seed, one run.
struct Schedule {
    simulation: Simulation,
    random: StdRng,
    lessees: Vec<Actor>,
    grants: Arc<Mutex<BTreeMap<u64, Duration>>>,
}

/// A lessee as the simulation sees it.
struct Actor {
    process: ProcessId,
    network: Arc<AtomicU8>,
    rate: f64,
    life: Arc<Life>,
    /// When it ran, as the ends of its slices.
    ran: Vec<Duration>,
    resume_at: Option<Duration>,
    sound_at: Option<Duration>,
}

/// What a lessee lives through, for the simulation to see.
#[derive(Default)]
struct Life {
    current: Mutex<Option<Arc<Lease>>>,
    tenures: Mutex<BTreeMap<u64, Tenure>>,
}

/// All times are true ones.
#[derive(Debug, Default, Clone)]
struct Tenure {
    /// Until when the lease would say that it is held, if nothing more happened to it.
    claims_until: Duration,
    /// When its holder was told that it was lost.
    told: Option<Duration>,
    /// When its holder began to give it back.
    given_back: Option<Duration>,
}

#[derive(Debug, Default)]
struct Verdict {
    violations: Vec<String>,
    takeovers: usize,
    polled: usize,
}

const SOUND: u8 = 0;
const NO_HEARTBEAT_ARRIVES: u8 = 1;
const NO_HEARTBEAT_IS_ANSWERED: u8 = 2;

impl Schedule {
    fn new(seed: u64, skew: Skew) -> Self {
        let mut simulation = Simulation::new(seed);
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let grants = Arc::default();
        let store = simulation.on_network(|| Recorded {
            store: MemoryStore::counting_from_one(),
            born: BootClock::new().now(),
            grants: Arc::clone(&grants),
        });
        let (store, mail) = (Arc::new(store), Mail::default());
        let lessees = (0..LESSEES)
            .map(|number| Actor::start(&mut simulation, &store, &mail, number, skew, &mut random))
            .collect();
        Self { simulation, random, lessees, grants }
    }

    fn run(mut self) -> Verdict {
        let mut next_trouble = self.part_of(TTL);
        while self.simulation.now() < LENGTH {
            if self.simulation.now() >= next_trouble {
                self.make_trouble();
                next_trouble = self.simulation.now() + self.part_of(TTL * 2);
            }
            self.step();
        }
        self.judge()
    }

    fn step(&mut self) {
        let now = self.simulation.now();
        for lessee in &mut self.lessees {
            if lessee.resume_at.is_some_and(|at| at <= now) {
                lessee.resume_at = None;
                self.simulation.resume(lessee.process);
            }
            if lessee.sound_at.is_some_and(|at| at <= now) {
                lessee.sound_at = None;
                lessee.network.store(SOUND, Ordering::SeqCst);
            }
        }
        self.simulation.step();
        let now = self.simulation.now();
        for lessee in self.lessees.iter_mut().filter(|one| self.simulation.runs(one.process)) {
            lessee.ran.push(now);
            let current = lessee.life.current.lock().unwrap().clone();
            if let Some(lease) = current {
                let left = self
                    .simulation
                    .look_into(lessee.process, || lease.remaining())
                    .unwrap_or_default();
                if left.is_zero() {
                    continue;
                }
                let until = now + left.div_f64(lessee.rate);
                let mut tenures = lessee.life.tenures.lock().unwrap();
                let tenure = tenures.entry(lease.token().get()).or_default();
                tenure.claims_until = tenure.claims_until.max(until);
            }
        }
    }

    /// Something happens to whoever holds the key, or else to anybody.
    fn make_trouble(&mut self) {
        let anybody = self.random.random_range(0..self.lessees.len());
        let holder = self.lessees.iter().position(|one| one.life.current.lock().unwrap().is_some());
        let now = self.simulation.now();
        let pause = self.part_of(TTL * 3);
        let silence = TTL + self.part_of(TTL);
        let what = self.random.random_range(0..4);
        let Some(lessee) = self.lessees.get_mut(holder.unwrap_or(anybody)) else { return };
        match what {
            0 => {
                self.simulation.pause(lessee.process);
                lessee.resume_at = Some(now + pause);
            }
            1 => lessee.suffer(NO_HEARTBEAT_ARRIVES, now + silence),
            2 => lessee.suffer(NO_HEARTBEAT_IS_ANSWERED, now + silence),
            _ => (),
        }
    }

    fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let grants = self.grants.lock().unwrap();
        for lessee in &self.lessees {
            for (token, tenure) in lessee.life.tenures.lock().unwrap().iter() {
                let Some((successor, taken)) = grants.range(token + 1..).next() else {
                    continue;
                };
                let ends = [Some(tenure.claims_until), tenure.told, tenure.given_back];
                let held_until = ends.into_iter().flatten().min().unwrap_or_default();
                if held_until > *taken {
                    verdict.violations.push(format!(
                        "token {token} says held until {held_until:?}, \
                         but token {successor} was granted at {taken:?}: {tenure:?}"
                    ));
                }
                if tenure.given_back.is_some_and(|at| at <= *taken) {
                    continue;
                }
                verdict.takeovers += 1;
                let deadline = tenure.claims_until + Duration::from_millis(1);
                let ran_in_time = lessee.ran.iter().any(|ran| deadline <= *ran && ran <= taken);
                if ran_in_time {
                    verdict.polled += 1;
                    if tenure.told.is_none_or(|told| told > *taken) {
                        verdict.violations.push(format!(
                            "token {token} was lost at {deadline:?} and taken at {taken:?}, \
                             but its holder was told at {:?}",
                            tenure.told
                        ));
                    }
                }
            }
        }
        verdict
    }

    fn part_of(&mut self, length: Duration) -> Duration {
        length.mul_f64(self.random.random_range(0.0..1.0))
    }
}

impl Actor {
    fn start(
        simulation: &mut Simulation,
        store: &Arc<Recorded>,
        mail: &Mail,
        number: usize,
        skew: Skew,
        random: &mut StdRng,
    ) -> Self {
        let seed: u64 = random.random();
        let rate = 1.0 + random.random_range(-skew.0..=skew.0);
        let ahead = Duration::from_secs(random.random_range(0..7200));
        let network = Arc::new(AtomicU8::new(SOUND));
        let faulty = Faulty::new(Arc::clone(store))
            .carried_by(simulation.network().clone())
            .with_latency(Simulation::LATENCY);
        faulty.choose(trouble(seed, Arc::clone(&network)));
        let life = Arc::new(Life::default());
        let process = simulation.start({
            let (life, mail) = (Arc::clone(&life), Arc::clone(mail));
            move || {
                let clock = Arc::new(SkewedClock::new(ahead, rate));
                let locker = Locker::new(faulty)
                    .with_lessee(Lessee::new(format!("lessee-{number}")).unwrap())
                    .with_options(LeaseOptions::new(TTL).unwrap())
                    .with_clock(clock)
                    .with_seed(seed);
                live(locker, life, mail, BootClock::new().now(), seed)
            }
        });
        Self { process, network, rate, life, ran: Vec::new(), resume_at: None, sound_at: None }
    }

    fn suffer(&mut self, what: u8, until: Duration) {
        self.network.store(what, Ordering::SeqCst);
        self.sound_at = Some(until);
    }
}

/// What befalls the requests of one lessee.
fn trouble(seed: u64, network: Arc<AtomicU8>) -> impl FnMut(Call) -> Option<Fault> + Send {
    let mut random = StdRng::seed_from_u64(seed);
    move |call| {
        match (call, network.load(Ordering::SeqCst)) {
            (Call::Heartbeat, NO_HEARTBEAT_ARRIVES) => return Some(Fault::Fail),
            (Call::Heartbeat, NO_HEARTBEAT_IS_ANSWERED) => return Some(Fault::HangReply),
            _ => (),
        }
        let late = (TTL * 2).mul_f64(random.random_range(0.0..1.0));
        match random.random_range(0..40) {
            0 => Some(Fault::Fail),
            1 => Some(Fault::Hang),
            2 => Some(Fault::LoseReply),
            3 => Some(Fault::HangReply),
            4 => Some(Fault::DelayRequest(late)),
            5 => Some(Fault::DelayReply(late)),
            6 => Some(Fault::ApplyLate(late)),
            7 => Some(Fault::Double(late)),
            _ => None,
        }
    }
}

/// Where hand-overs wait for whoever comes next.
type Mail = Arc<Mutex<Vec<HandOver>>>;

/// A lessee's life: obtain or resume, work, give back or hand over, and again.
async fn live(locker: Locker, life: Arc<Life>, mail: Mail, born: Moment, seed: u64) {
    let mut random = StdRng::seed_from_u64(!seed);
    let key: LeaseKey = "shared".parse().unwrap();
    let now = || BootClock::new().now().since(born);
    loop {
        let handed = mail.lock().unwrap().pop();
        let lease = match handed {
            Some(handed) => locker.resume(handed).await,
            None => locker.wait_until_obtained(&key).await.map(Some),
        };
        let Ok(Some(lease)) = lease else { continue };
        let token = lease.token().get();
        let lease = Arc::new(lease);
        *life.current.lock().unwrap() = Some(Arc::clone(&lease));

        let work = (TTL * 4).mul_f64(random.random_range(0.0..1.0));
        let lost = lease.run_until_lost(tokio::time::sleep(work)).await.is_err();

        life.current.lock().unwrap().take();
        let mut tenure = life.tenures.lock().unwrap().remove(&token).unwrap_or_default();
        *(if lost { &mut tenure.told } else { &mut tenure.given_back }) = Some(now());
        life.tenures.lock().unwrap().insert(token, tenure);
        let Some(lease) = Arc::into_inner(lease) else { continue };
        match random.random_range(0..4) {
            0 | 1 => drop(lease.release().await),
            2 => {
                let wait = TTL / 2 + (TTL * 2).mul_f64(random.random_range(0.0..1.0));
                if let Ok(Handed::Over(handed)) = lease.hand_over(wait).await {
                    mail.lock().unwrap().push(handed);
                }
            }
            _ => drop(lease),
        }
    }
}

/// The store, which notes when each token was granted.
#[derive(Debug)]
struct Recorded {
    store: MemoryStore,
    born: Moment,
    grants: Arc<Mutex<BTreeMap<u64, Duration>>>,
}

impl Recorded {
    fn note(&self, obtained: Obtained) -> Obtained {
        if let Obtained::Granted(grant, _) = &obtained {
            let now = BootClock::new().now().since(self.born);
            self.grants.lock().unwrap().entry(grant.token.get()).or_insert(now);
        }
        obtained
    }
}

#[async_trait]
impl LockStore for Recorded {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        Ok(self.note(self.store.obtain(claim).await?))
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        Ok(self.note(self.store.adopt(grant, claim).await?))
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }
}

fn in_parallel(seeds: &[u64], run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) =
                    seeds.get(usize::try_from(next.fetch_add(1, Ordering::SeqCst)).unwrap())
                {
                    run(*seed);
                }
            });
        }
    });
}
