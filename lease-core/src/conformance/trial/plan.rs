//! A workload of yours under faults: contenders that are paused, suspended, killed and cut off,
//! in virtual time, and a verdict on what came of it.

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

/// One seed, one run: contenders on a model of a store, and everything that may befall them.
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

/// Whether the clocks of contenders go on while their machine is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clocks {
    GoOn,
    Stop,
}

/// Which faults contenders and servers meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Faults {
    Random,
    None,
}

/// What contenders share: one store, or the servers that make up one.
pub trait Model {
    /// What a contender reaches it by.
    type Store: LockStore;

    /// Connects a contender. Called in its process, and at each of its starts.
    fn connect(&mut self, client: ClientContext) -> BoxFuture<'static, Self::Store>;

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
pub struct ClientContext {
    /// What its requests suffer from.
    pub faults: NetworkFaults,
    /// The clock that it goes by, for stores that read one.
    pub clock: Arc<dyn Clock>,
    /// The true time, as told inside it.
    pub time: WorldTime,
}

/// Where the model of a trial lives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelContext {
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
            faults: Faults::Random,
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

    /// Injects no fault: for measurements. Faults of the model's own still happen.
    pub fn without_faults(mut self) -> Self {
        self.faults = Faults::None;
        self
    }

    /// After the trouble, gives every contender `ttls` times the ttl to obtain a lease. By
    /// default 100: nothing promises turns across processes.
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
