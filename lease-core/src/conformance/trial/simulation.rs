//! Processes that can be paused, resumed and killed, in one thread and in virtual time.
//!
//! Each process is a tokio runtime with paused time. The simulation advances all processes in small
//! steps, in turn. A paused process does not advance, as after `SIGSTOP`. On resumption, its clock
//! jumps to the present. A seed determines the whole run, down to each poll.
//!
//! A fast message could reach a receiver that is already past the message's time. So a request
//! takes longer than a step ([`Simulation::LATENCY`]). This is the rule of conservative parallel
//! simulation (Chandy and Misra, "Distributed simulation", 1979).

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

/// A simulation of processes and the network between them.
pub struct Simulation {
    /// The runtime of requests. Never paused, so requests continue while their client is paused.
    network: Process,
    processes: Vec<Process>,
    now: Duration,
    random: StdRng,
}

/// The number of a process, in the order of starts, from 0.
pub type ProcessId = usize;

struct Process {
    runtime: Option<Runtime>,
    time: WorldTime,
    paused: bool,
}

/// Reads, within one process, the simulated time since the simulation started.
#[derive(Debug, Clone)]
pub struct WorldTime {
    born: Moment,
    born_at: Arc<AtomicU64>,
}

impl WorldTime {
    fn starting(at: Duration) -> Self {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        Self { born: awake(), born_at: Arc::new(at.into()) }
    }

    /// Returns the simulated time. Call this only in the process for which the value was made.
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
    /// The minimal time of a request: longer than the longest step.
    pub const LATENCY: Duration = Duration::from_millis(5);

    /// Makes a simulation at time zero. `seed` determines all random choices.
    pub fn new(seed: u64) -> Self {
        Self {
            network: Process::start(Duration::ZERO),
            processes: Vec::new(),
            now: Duration::ZERO,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// The runtime of requests and stores, for [`Faulty::carried_by`](crate::conformance::Faulty).
    pub fn network(&self) -> &Handle {
        self.network.handle()
    }

    /// The simulated time since the start.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Runs `f` in the network's runtime.
    pub fn on_network<T>(&self, f: impl FnOnce() -> T) -> T {
        let _inside = self.network.handle().enter();
        f()
    }

    /// The simulated time, as read in the network's runtime.
    pub fn time(&self) -> WorldTime {
        self.network.time.clone()
    }

    /// Starts a process that runs `main`.
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

    /// Pauses `process` until it is resumed.
    pub fn pause(&mut self, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(process) {
            process.paused = true;
        }
    }

    /// Resumes `process`. Its clock jumps to the present.
    pub fn resume(&mut self, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(process) {
            process.paused = false;
        }
    }

    /// Resumes `process` after a suspension of its machine. Its timers did not advance meanwhile, like
    /// `CLOCK_MONOTONIC` on Linux. Returns the length of the suspension. The caller must move the clock of
    /// the process ahead by this length, with [`leap`](crate::conformance::SkewedClock::leap).
    pub fn wake(&mut self, process: ProcessId) -> Duration {
        let Some(process) = self.processes.get_mut(process) else { return Duration::ZERO };
        process.paused = false;
        let slept = self.now.saturating_sub(process.timer_time());
        process.time.skip(slept);
        slept
    }

    /// Kills `process`: drops its tasks at their current await. Requests that it has sent still arrive.
    pub fn kill(&mut self, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(process)
            && let Some(runtime) = process.runtime.take()
        {
            runtime.shutdown_background();
        }
    }

    /// Whether `process` is neither paused nor killed.
    pub fn runs(&self, process: ProcessId) -> bool {
        self.processes
            .get(process)
            .is_some_and(|process| process.runtime.is_some() && !process.paused)
    }

    /// Runs `look` in the runtime of `process`, between two steps.
    pub fn look_into<T>(&self, process: ProcessId, look: impl FnOnce() -> T) -> Option<T> {
        let runtime = self.processes.get(process)?.runtime.as_ref()?;
        let _inside = runtime.enter();
        Some(look())
    }

    /// Advances all running processes by one step of 1 to 4 ms, in random order.
    pub fn step(&mut self) {
        self.now += Duration::from_millis(self.random.random_range(1..=4));
        let mut order: Vec<_> = self.processes.iter().filter(|process| !process.paused).collect();
        order.shuffle(&mut self.random);
        for process in order {
            process.run_until(self.now);
        }
        self.network.run_until(self.now);
    }

    /// Advances all running processes by `time`.
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
        // The clock counts from its first reading in this program. A first reading in paused time
        // would cost the first trial a part of a millisecond.
        let _first_reading = awake();
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

    #[expect(clippy::expect_used, reason = "a new process and the network have a runtime")]
    fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("a living process").handle()
    }

    fn timer_time(&self) -> Duration {
        let Some(runtime) = &self.runtime else { return Duration::MAX };
        let _inside = runtime.enter();
        self.time.now()
    }

    fn run_until(&self, until: Duration) {
        let Some(runtime) = &self.runtime else { return };
        runtime.block_on(async {
            let behind = until.saturating_sub(self.time.now());
            if behind > Simulation::LATENCY {
                // Its time jumps to the present, and then its tasks run for 1 ms.
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
