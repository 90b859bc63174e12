//! The store, and what its clones share.

use std::fmt;
use std::sync::Arc;

use lease_core::store::Observations;

use crate::known::Known;
use crate::observed::Observed;
use crate::random::Random;
use crate::register::{Register, Versioned};
use crate::settings::Settings;

/// Stores leases in a [`Register`]. Clones share what the store knows of its keys.
///
/// The [crate's page](crate) documents the protocol, the number of requests, and the behaviour under faults.
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
/// use lease_register::RegisterStore;
/// use lease_register::conformance::MemoryRegister; // yours
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = Locker::new(RegisterStore::new(MemoryRegister::opaque()));
/// let lease = locker.wait_until_obtained(&"payroll/2026-11".parse()?).await?;
/// println!("obtained with token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
pub struct RegisterStore<R> {
    pub(crate) shared: Arc<Shared<R>>,
}

pub(crate) struct Shared<R> {
    pub(crate) register: R,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) observations: Observations<Observed>,
    pub(crate) known: Known<Versioned>,
}

impl<R: Register> RegisterStore<R> {
    /// The register.
    pub fn register(&self) -> &R {
        &self.shared.register
    }

    pub(crate) fn with(register: R, settings: Settings, random: Random) -> Self {
        let observations = Observations::new(settings.observed_keys);
        let known = Known::new(settings.observed_keys);
        Self { shared: Arc::new(Shared { register, settings, random, observations, known }) }
    }
}

impl<R> Clone for RegisterStore<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R: Register> fmt::Debug for RegisterStore<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterStore")
            .field("register", &self.shared.register)
            .finish_non_exhaustive()
    }
}
