//! The plan of a trial: a workload under faults in virtual time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use tokio::runtime::Handle;

use super::ledger::Ledger;
use super::network_faults::NetworkFaults;
use super::simulation::WorldTime;
use super::witness::Witness;
use crate::clock::Clock;
use crate::locker::Locker;
use crate::options::LeaseOptions;
use crate::store::lock_store::LockStore;

/// A run of processes that contend for leases on a model of a store. The seed determines the whole run.
///
/// # Examples
///
/// See `examples/simulated_job.rs` for a workload of your own.
#[derive(Debug, Clone)]
#[must_use = "a trial does nothing until it runs"]
pub struct Trial {
    pub(super) seed: u64,
    pub(super) contenders: usize,
    pub(super) options: LeaseOptions,
    pub(super) length: Duration,
    pub(super) clock_rates: f64,
    pub(super) clocks: Clocks,
    pub(super) faults: Faults,
    pub(super) patience: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clocks {
    Run,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Faults {
    Random,
    None,
}

/// The store that contenders share: one store, or several servers that form a store.
pub trait Model {
    /// The store type that a contender uses.
    type Store: LockStore;

    /// Connects a contender to the store.
    fn connect(&mut self, client: ClientContext) -> BoxFuture<'static, Self::Store>;

    /// Injects a random fault into the servers, and records it in the ledger.
    fn strike(&mut self, random: &mut StdRng) {
        let _ = random;
    }

    /// Ends all faults of the servers.
    fn heal(&mut self) {}

    /// Called after each step of the simulation.
    fn step(&mut self) {}
}

/// The context of a contender's process at its start.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientContext {
    /// The faults of the contender's requests.
    pub faults: NetworkFaults,
    /// The clock of the process, for stores that read a clock.
    pub clock: Arc<dyn Clock>,
    /// The simulated time, for this process.
    pub time: WorldTime,
}

/// The context of a trial's model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelContext {
    /// The runtime of requests and servers.
    pub network: Handle,
    /// Records grants and writes, in simulated time.
    pub ledger: Ledger,
    /// The seed of all random choices in the model.
    pub seed: u64,
}

/// One process that contends for leases, from its start to its end.
#[non_exhaustive]
pub struct Contender<S> {
    /// The contender's locker, on `store`.
    pub locker: Locker,
    /// The locker's store.
    pub store: Arc<S>,
    /// Observes leases: call [`Witness::watch`] with each lease that you obtain.
    pub witness: Witness,
    /// The seed of random choices in the job.
    pub seed: u64,
}

impl Trial {
    /// Plans three contenders with leases of 200 ms, and faults for 1.6 s. Clocks are up to two
    /// hours apart. Each clock rate is wrong by up to half of the error that the options assume.
    pub fn new(seed: u64) -> Self {
        let ttl = Duration::from_millis(200);
        Self {
            seed,
            contenders: 3,
            options: LeaseOptions::of(ttl),
            length: ttl * 8,
            clock_rates: 0.005,
            clocks: Clocks::Run,
            faults: Faults::Random,
            patience: 100,
        }
    }

    /// Starts `contenders` processes.
    pub fn with_contenders(mut self, contenders: usize) -> Self {
        self.contenders = contenders;
        self
    }

    /// Gives all lockers `options`. Faults last for 8 ttls.
    pub fn with_options(mut self, options: LeaseOptions) -> Self {
        self.length = options.ttl() * 8;
        self.options = options;
        self
    }

    /// Injects faults for `length`.
    pub fn with_length(mut self, length: Duration) -> Self {
        self.length = length;
        self
    }

    /// Makes the clocks of contenders fast or slow by up to `error`, a fraction of the rate.
    ///
    /// As a control: if two rates differ by more than the options assume, the trial must find a violation.
    pub fn with_clock_rates(mut self, error: f64) -> Self {
        self.clock_rates = error;
        self
    }

    /// Stops the clocks of contenders while their machine is suspended. The trial must then find a
    /// violation.
    pub fn with_clocks_that_stop(mut self) -> Self {
        self.clocks = Clocks::Stop;
        self
    }

    /// Injects no faults, for measurements.
    pub fn without_faults(mut self) -> Self {
        self.faults = Faults::None;
        self
    }

    /// Each contender must obtain a lease within `ttls` ttls after the faults. The default is 100,
    /// because processes do not queue in a fair order.
    pub fn with_patience(mut self, ttls: u32) -> Self {
        self.patience = ttls;
        self
    }
}

impl<S> fmt::Debug for Contender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("locker", &self.locker).finish_non_exhaustive()
    }
}
