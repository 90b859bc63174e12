//! Lengths of time that their constructors check, so a call that ends a lease cannot fail because of its
//! argument.

use std::time::Duration;

use crate::invalid::InvalidInput;
use crate::options::LeaseOptions;

/// How long a lease lasts without a heartbeat: 100 ms to a day.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::Ttl;
///
/// assert_eq!(Ttl::new(Duration::from_secs(10))?.get(), Duration::from_secs(10));
/// assert!(Ttl::new(Duration::ZERO).is_err());
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ttl(Duration);

/// How long a key stays reserved after its release: up to seven days, the time for which stores
/// remember tokens.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::Reservation;
///
/// assert_eq!(Reservation::new(Duration::from_secs(60))?.get(), Duration::from_secs(60));
/// assert!(Reservation::new(Duration::MAX).is_err());
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reservation(Duration);

impl Ttl {
    /// Checks and keeps `length`.
    ///
    /// # Errors
    ///
    /// If `length` is not [`LeaseOptions::MIN_TTL`] to [`LeaseOptions::MAX_TTL`].
    pub fn new(length: Duration) -> Result<Self, InvalidInput> {
        LeaseOptions::check_range("ttl", length)?;
        Ok(Self(length))
    }

    /// Makes a ttl of `length`, or of the nearest valid length.
    pub fn clamped(length: Duration) -> Self {
        Self(length.clamp(LeaseOptions::MIN_TTL, LeaseOptions::MAX_TTL))
    }

    /// The length.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl Reservation {
    /// Checks and keeps `length`.
    ///
    /// # Errors
    ///
    /// If `length` is longer than [`LeaseOptions::MAX_RESERVATION`].
    pub fn new(length: Duration) -> Result<Self, InvalidInput> {
        if length > LeaseOptions::MAX_RESERVATION {
            return Err(InvalidInput::new(format!(
                "a reservation of {length:?} is too long: at most seven days"
            )));
        }
        Ok(Self(length))
    }

    /// Makes a reservation of `length`, or the longest reservation if `length` is too long.
    pub fn clamped(length: Duration) -> Self {
        Self(length.min(LeaseOptions::MAX_RESERVATION))
    }

    /// The length.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidInput;

    fn try_from(length: Duration) -> Result<Self, InvalidInput> {
        Self::new(length)
    }
}

impl TryFrom<Duration> for Reservation {
    type Error = InvalidInput;

    fn try_from(length: Duration) -> Result<Self, InvalidInput> {
        Self::new(length)
    }
}
