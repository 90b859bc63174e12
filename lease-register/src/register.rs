//! The trait of a register: a value per key that is replaced on condition of its version.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lease_core::store::{BoxStream, Freed, ServerClock};
use lease_core::{LeaseKey, StoreError};

use crate::record::Record;

/// Keeps a [`Record`] per key, and replaces it if nobody else has replaced it.
///
/// Implement this trait for a service that can compare and swap. [`RegisterStore`](crate::RegisterStore) then
/// stores leases in the service. A method sends one request, and does not retry a write: an error means that the
/// outcome is unknown.
///
/// # To ensure correctness
///
/// - **A replacement is atomic.** Of all requests that expect one version, at most one is ever applied, also if
///   requests arrive late or twice.
/// - **Versions never come back.** Each applied write gives its key a version that the key never had, also after the
///   record was deleted by hand, and after the service was restored from a backup. A version may be a hash of the
///   content, since no two records are equal: each has a random [`mark`](Record::mark). If a backup has the counter of
///   the versions, raise the counter at the restore, or stop all processes before it.
/// - **A read is current.** It returns what the last write that has been answered wrote, or a later record. A
///   store on a register whose reads lag is still exclusive, but its requests may fail.
/// - **A record is read back as it was written,** with all its fields.
///
/// The feature `conformance` has a kit with one test per promise: [`conformance`](crate::conformance).
#[async_trait]
pub trait Register: fmt::Debug + Send + Sync + 'static {
    /// Reads the record of `key` and its version; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// If the service did not answer, or if its value is no record.
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError>;

    /// Writes `record` if the version of `key` is `expected`; `None` expects that the key is absent.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown: the request may have been applied, or may still be applied.
    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError>;

    /// Lists all keys that start with `prefix`, in any order, over all pages. An error is an item of the stream.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>>;

    /// Watches `key` until its version is no longer `seen`; `None` means that the key was absent.
    ///
    /// The watch is registered when this returns. If the version differs from `seen` already, the watch wakes at
    /// once. It may wake without a cause. The default never wakes, and waiters poll.
    ///
    /// # Errors
    ///
    /// If no watch could be registered. Waiters then poll.
    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        let _ = (key, seen);
        Ok(Freed::never())
    }

    /// What the versions of a key say beyond equality. The default is [`Versions::Opaque`].
    fn versions(&self) -> Versions {
        Versions::Opaque
    }

    /// The clock of the service, if its answers have dates. Then a lease that expired long ago is granted at once,
    /// also by a process that has just started. The default is `None`.
    ///
    /// Make the clock with the store's
    /// [clock rate error](crate::RegisterStoreBuilder::with_clock_rate_error), 0.01 by default. With a smaller one, the
    /// bounds of the service's time may be wrong, and a lease may be granted too early.
    fn clock(&self) -> Option<&ServerClock> {
        None
    }
}

/// What the versions of a key say beyond equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "versions have an order or not")]
pub enum Versions {
    /// Equality alone. The tokens of a key are a counter in its record. If the record is deleted by hand, the next
    /// counter starts from the time.
    Opaque,
    /// Each version is a number, and a later version of a key is larger, also after the key was deleted or the service
    /// was restored from a backup. The token of a grant is then the version that the grant replaced.
    Growing,
}

/// The version of a record, as the service names it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Arc<str>);

impl Version {
    /// Wraps a text of the service.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number, if the text is one.
    pub fn number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A record and its version.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "an answer of a register has two parts")]
pub struct Versioned {
    /// The record.
    pub record: Record,
    /// The version of the record.
    pub version: Version,
}

/// The answer to a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a conflict changed nothing"]
#[expect(clippy::exhaustive_enums, reason = "a replacement is applied or not")]
pub enum Replaced {
    /// The record was written, and has this version.
    Done(Version),
    /// The key's version is not the expected one. Nothing was written.
    ///
    /// A client that repeats requests by itself may report this for a write that was applied. The store finds that
    /// out by the [`mark`](Record::mark).
    Conflict,
}

// All methods must be forwarded: a default method would hide the method of the inner register.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<R: Register + ?Sized> Register for Arc<R> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        (**self).read(key).await
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        (**self).replace(key, expected, record).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        (**self).list(prefix)
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        (**self).changed(key, seen).await
    }

    fn versions(&self) -> Versions {
        (**self).versions()
    }

    fn clock(&self) -> Option<&ServerClock> {
        (**self).clock()
    }
}
