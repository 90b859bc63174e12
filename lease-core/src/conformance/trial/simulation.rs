//! Processes that can be paused, resumed and killed, in one thread and in virtual time.
//!
//! Each process is a tokio runtime of its own whose time is paused, so that the simulation
//! alone moves it: all processes in small steps, one after the other. A process that is paused
//! is left out, as one that was sent `SIGSTOP`; when it is resumed, its clock jumps to the
//! present, and its tasks find out in whatever order their runtime polls them. One seed is one
//! run, to the last poll.
//!
//! Steps and the network go together: a request takes longer than a step
//! ([`Simulation::LATENCY`]), so nothing arrives in the past of who receives it, although
//! processes run one after the other. (The rule is that of conservative parallel simulation:
//! Chandy and Misra, "Distributed simulation", 1979.)

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::clock::{Moment, awake};

/// A world of processes, and the network between them.
pub struct Simulation {
    /// Never paused: what is on its way goes on.
    network: Process,
    processes: Vec<Process>,
    now: Duration,
    random: StdRng,
}

/// Which process; in the order in which they were started, from 0.
pub type ProcessId = usize;

struct Process {
    /// `None` once it was killed.
    runtime: Option<Runtime>,
    time: WorldTime,
    paused: bool,
}

/// The time since the world began, as told inside one process: true, whatever the clock that
/// the process goes by.
#[derive(Debug, Clone)]
pub struct WorldTime {
    born: Moment,
    /// In nanoseconds; later for each time that the process slept through.
    born_at: Arc<AtomicU64>,
}

impl WorldTime {
    fn starting(at: Duration) -> Self {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        Self { born: awake(), born_at: Arc::new(at.into()) }
    }

    /// Means something in its own process alone.
    pub fn now(&self) -> Duration {
        let born_at = Duration::from_nanos(self.born_at.load(Ordering::SeqCst));
        born_at + awake().since(self.born)
    }

    fn skip(&self, length: Duration) {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.born_at.fetch_add(length, Ordering::SeqCst);
    }
}

impl Simulation {
    /// How long a request takes at least: longer than the longest step.
    pub const LATENCY: Duration = Duration::from_millis(5);

    /// A world without processes, at time zero. All chance in it follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            network: Process::start(Duration::ZERO),
            processes: Vec::new(),
            now: Duration::ZERO,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Where requests travel and stores live: for [`Faulty::carried_by`](crate::conformance::Faulty).
    pub fn network(&self) -> &Handle {
        self.network.handle()
    }

    /// The time since the world began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Runs `f` in the network's runtime: a store made there lives by the network's clock.
    pub fn on_network<T>(&self, f: impl FnOnce() -> T) -> T {
        let _inside = self.network.handle().enter();
        f()
    }

    /// Tells the time where requests travel and stores live.
    pub fn time(&self) -> WorldTime {
        self.network.time.clone()
    }

    /// Starts a process, whose `main` is called in it and then runs.
    pub fn start<M: Future<Output = ()> + Send + 'static>(
        &mut self,
        main: impl FnOnce(WorldTime) -> M,
    ) -> ProcessId {
        let process = Process::start(self.now);
        let inside = process.handle().enter();
        process.handle().spawn(main(process.time.clone()));
        drop(inside);
        self.processes.push(process);
        self.processes.len() - 1
    }

    /// Stops `process` where it stands, until it is resumed.
    pub fn pause(&mut self, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(process) {
            process.paused = true;
        }
    }

    /// Lets `process` go on; its clock jumps to the present.
    pub fn resume(&mut self, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(process) {
            process.paused = false;
        }
    }

    /// Lets `process` go on as on a machine that was suspended: its timers have stood still, as
    /// Linux' `CLOCK_MONOTONIC` does. Answers for how long; whatever clock it goes by has to
    /// [leap](crate::conformance::SkewedClock::leap) by as much.
    pub fn wake(&mut self, process: ProcessId) -> Duration {
        let Some(process) = self.processes.get_mut(process) else { return Duration::ZERO };
        process.paused = false;
        let slept = self.now.saturating_sub(process.told_time());
        process.time.skip(slept);
        slept
    }

    /// Ends `process` at once: its tasks are dropped where they stand, and nothing that they
    /// left undone is done. What it sent is still on its way.
    pub fn kill(&mut self, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(process)
            && let Some(runtime) = process.runtime.take()
        {
            runtime.shutdown_background();
        }
    }

    /// Whether `process` runs now.
    pub fn runs(&self, process: ProcessId) -> bool {
        self.processes
            .get(process)
            .is_some_and(|process| process.runtime.is_some() && !process.paused)
    }

    /// Looks into `process` between two steps: `look` runs in its runtime, by its clock.
    pub fn look_into<T>(&self, process: ProcessId, look: impl FnOnce() -> T) -> Option<T> {
        let runtime = self.processes.get(process)?.runtime.as_ref()?;
        let _inside = runtime.enter();
        Some(look())
    }

    /// Moves all that run by one step: 1 to 4 ms, the processes in random order.
    pub fn step(&mut self) {
        self.now += Duration::from_millis(self.random.random_range(1..=4));
        let mut order: Vec<_> = self.processes.iter().filter(|process| !process.paused).collect();
        order.shuffle(&mut self.random);
        for process in order {
            process.run_until(self.now);
        }
        self.network.run_until(self.now);
    }

    /// Moves all that run until `time` has passed.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }
}

impl Process {
    #[expect(clippy::expect_used, reason = "a simulation without a runtime has failed")]
    fn start(born_at: Duration) -> Self {
        // The clock counts from its first look in all the program. That has to come before this
        // time is frozen, or the first trial's would be cut off by a part of a millisecond.
        let _first_look = awake();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime for a process");
        let inside = runtime.enter();
        let time = WorldTime::starting(born_at);
        drop(inside);
        Self { runtime: Some(runtime), time, paused: false }
    }

    #[expect(clippy::expect_used, reason = "asked only of a process that was just started")]
    fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("a living process").handle()
    }

    /// What time it is by the timers of the process itself.
    fn told_time(&self) -> Duration {
        let Some(runtime) = &self.runtime else { return Duration::MAX };
        let _inside = runtime.enter();
        self.time.now()
    }

    fn run_until(&self, until: Duration) {
        let Some(runtime) = &self.runtime else { return };
        runtime.block_on(async {
            let behind = until.saturating_sub(self.time.now());
            if behind > Simulation::LATENCY {
                // It was paused: it wakes up in the present, and gets to run a little.
                tokio::time::advance(behind).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else {
                tokio::time::sleep(behind).await;
            }
        });
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("now", &self.now)
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}
