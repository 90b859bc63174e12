//! Configures a store. The builder checks all values before any request.

use std::sync::Arc;
use std::time::Duration;

use lease_core::InvalidInput;
use lease_core::store::{BootClock, Clock};

use crate::random::Random;
use crate::register::Register;
use crate::settings::Settings;
use crate::store::RegisterStore;

/// Configures a [`RegisterStore`].
///
/// # Examples
///
/// ```
/// # fn build() -> Result<(), lease_core::InvalidInput> {
/// use std::time::Duration;
///
/// use lease_register::RegisterStore;
/// use lease_register::conformance::MemoryRegister;
///
/// let store = RegisterStore::builder(MemoryRegister::opaque())
///     .with_margin(Duration::from_secs(5))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct RegisterStoreBuilder<R> {
    register: R,
    settings: Settings,
    random: Random,
}

impl<R: Register> RegisterStoreBuilder<R> {
    pub(crate) fn new(register: R) -> Self {
        let settings = Settings {
            clock: Arc::new(BootClock::new()),
            clock_rate_error: 0.01,
            margin: Duration::from_secs(2),
            observed_keys: 10_000,
        };
        Self { register, settings, random: Random::System }
    }

    /// Assumes that the rates of this machine's clock and of any other clock differ by at most `error`: 0 to 0.1, as a
    /// fraction of the rate. Defaults to 0.01, as
    /// [`LeaseOptions`](lease_core::LeaseOptions::with_clock_rate_error) does.
    ///
    /// The lockers on this store and the register's [`clock`](Register::clock) need the same value.
    pub fn with_clock_rate_error(mut self, error: f64) -> Self {
        self.settings.clock_rate_error = error;
        self
    }

    /// Waits for `margin` after an expiry in the service's time before a contender takes the lease.
    ///
    /// Defaults to 2 s: the clocks of the service's machines must differ by less. Does not matter for a register
    /// without a [`clock`](Register::clock).
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.settings.margin = margin;
        self
    }

    /// Remembers the state of up to `keys` keys: at least one. Defaults to 10,000, about 5 MB if the records have no
    /// attributes.
    ///
    /// The number must exceed the number of keys that this process holds or contends for. Otherwise, some heartbeats
    /// need a read, and the wait for the expiry of a forgotten key starts again: such a key may never be granted.
    pub fn with_observed_keys(mut self, keys: usize) -> Self {
        self.settings.observed_keys = keys;
        self
    }

    /// Reads lease time from `clock`: for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.clock = clock;
        self
    }

    /// Makes all random numbers from `seed`: for simulations. Two stores with one seed write equal records.
    #[cfg(feature = "conformance")]
    #[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.random = Random::from_seed(seed);
        self
    }

    /// Builds the store. Sends no request.
    ///
    /// # Errors
    ///
    /// If the clock rate error or the number of keys is out of range.
    pub fn build(self) -> Result<RegisterStore<R>, InvalidInput> {
        let error = self.settings.clock_rate_error;
        if !(0.0..=0.1).contains(&error) {
            return Err(InvalidInput::new(format!(
                "clock rate error {error} is out of range: 0 to 0.1, as a part of the rate"
            )));
        }
        if self.settings.observed_keys == 0 {
            return Err(InvalidInput::new("0 observed keys: at least one"));
        }
        Ok(self.build_unchecked())
    }

    pub(crate) fn build_unchecked(self) -> RegisterStore<R> {
        RegisterStore::with(self.register, self.settings, self.random)
    }
}

impl<R: Register> RegisterStore<R> {
    /// Creates a store of leases in `register`, with all defaults. Sends no request.
    pub fn new(register: R) -> Self {
        Self::builder(register).build_unchecked()
    }

    /// Configures a store: its assumptions about clocks, and its limits.
    pub fn builder(register: R) -> RegisterStoreBuilder<R> {
        RegisterStoreBuilder::new(register)
    }
}
