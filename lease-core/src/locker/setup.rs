//! The settings of a locker. Each method returns another locker with its own heartbeater.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

#[cfg(feature = "conformance")]
use crate::clock::Clock;
use crate::heartbeat::locker_runtime::Runtime;
use crate::key::Lessee;
use crate::locker::Locker;
use crate::metrics::Metrics;
use crate::metrics::guarded::Guarded;
use crate::options::LeaseOptions;
use crate::settings::Settings;
#[cfg(feature = "conformance")]
use crate::settings::random::Random;
use crate::settings::watchdog::Watchdog;
use crate::store::attributes::Attributes;

impl Locker {
    /// Returns a locker for `lessee`, with a heartbeater of its own.
    #[must_use]
    pub fn with_lessee(self, lessee: Lessee) -> Self {
        self.with(|settings| settings.lessee = lessee)
    }

    /// Returns a locker with `options` and a heartbeater of its own.
    #[must_use]
    pub fn with_options(self, options: LeaseOptions) -> Self {
        self.with(|settings| settings.options = options)
    }

    /// Returns a locker that sets `attributes` on the record of each key that it obtains, with a
    /// heartbeater of its own.
    ///
    /// The store sets the attributes in the request that grants the key, so no reader sees the grant
    /// without them. [`resume`](Self::resume) also sets the attributes. Other attributes of the record
    /// stay. [`Lease::attributes`](crate::Lease::attributes) returns both. After a grant, the record
    /// outlasts the lease, as after a [`LeaseTable::update`](crate::store::LeaseTable::update).
    ///
    /// Use the attributes to describe the holder, and `update` for progress. A claim whose attempt failed
    /// or was dropped may also set its attributes.
    ///
    /// Empty by default.
    ///
    /// # Errors
    ///
    /// None here. A store that keeps no records, such as a quorum of Redis servers, refuses the
    /// attempts of this locker with [`Misconfigured`](crate::StoreErrorKind::Misconfigured). A
    /// store that cannot keep a name or a value returns the same error as `update`.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_core::store::LeaseTable;
    /// use lease_core::{Attributes, Locker, Value};
    /// use lease_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let address = Attributes::from([("address".to_owned(), Value::from("10.0.0.7:8080"))]);
    /// let locker = Locker::new(store.clone()).with_attributes(address.clone());
    /// let key = "primary".parse()?;
    ///
    /// let lease = locker.wait_until_obtained(&key).await?;
    ///
    /// let record = store.read(&key).await?;
    /// assert_eq!(record.map(|record| record.attributes), Some(address));
    /// lease.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_attributes(self, attributes: Attributes) -> Self {
        self.with(|settings| settings.attributes = attributes)
    }

    /// Returns a locker that reports to `metrics`, with a heartbeater of its own.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn Metrics>) -> Self {
        self.with(|settings| {
            settings.metrics = Arc::new(Guarded(metrics));
            settings.has_metrics = true;
        })
    }

    /// Returns a locker that reads lease time from `clock`, for tests.
    #[cfg(feature = "conformance")]
    #[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| settings.clock = clock)
    }

    /// Returns a locker whose nonces, jitter and shuffles are determined by `seed`, for tests. Lockers on
    /// one store need different seeds.
    #[cfg(feature = "conformance")]
    #[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.with(|settings| settings.random = Arc::new(Random::from_seed(seed)))
    }

    /// Returns a locker whose heartbeater runs on `runtime`.
    ///
    /// Requests run there, too. The store's connections stay on the runtime on which the store was
    /// connected: if the application blocks that runtime, no heartbeat is answered. See
    /// [`on_own_thread`](Self::on_own_thread). A later `with_runtime` ends this thread.
    #[must_use]
    pub fn with_runtime(self, runtime: Handle) -> Self {
        Self::from(Settings::clone(&self.settings), Runtime::Given(runtime))
    }

    /// Stops heartbeats while the application has not called [`alive`](Self::alive) for `limit`, so that
    /// stuck work does not keep its keys for ever. Off by default. The time starts at this call.
    ///
    /// Choose a limit above the longest time between two calls of `alive`. After the limit, leases expire,
    /// and the log names the reason. The next call resumes the heartbeats of leases that have not expired.
    /// Lockers that are made from this locker share its watchdog.
    #[must_use]
    pub fn with_watchdog(self, limit: Duration) -> Self {
        self.with(|settings| {
            let watchdog = Watchdog::new(limit, settings.clock.now());
            settings.watchdog = Some(Arc::new(watchdog));
        })
    }
}
