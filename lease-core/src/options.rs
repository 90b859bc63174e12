//! The options of leases, which cannot contradict each other.

use std::time::Duration;

use crate::invalid::InvalidInput;

/// How long leases last, how they are extended, and how a locker waits for them.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::LeaseOptions;
///
/// let options = LeaseOptions::new(Duration::from_secs(10))?
///     .with_heartbeats_per_ttl(5)?
///     .with_grace(Duration::from_secs(2))?;
/// assert_eq!(options.heartbeat_period(), Duration::from_secs(2));
///
/// assert_eq!(
///     LeaseOptions::new(Duration::ZERO).unwrap_err().to_string(),
///     "ttl 0ns is out of range: a ttl is 100 ms to a day",
/// );
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseOptions {
    ttl: Duration,
    heartbeats_per_ttl: u32,
    clock_rate_error: f64,
    grace: Duration,
    poll_interval: Duration,
    waiting: Waiting,
}

/// How a locker waits for a held key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// In the store's queue, if the store keeps a queue: first come, first served, across all processes. A
    /// release hands the key to the next waiter in one round trip. With another store, waiters race. Waiters
    /// also race if the store keeps no queue for the key or for the claim, and ask for a place again after a ttl.
    #[default]
    InTurn,
    /// A release wakes one waiter of each locker, and the fastest waiter obtains the key. If the
    /// store counts waiters, many waiters try one after another, in random order.
    ///
    /// A racing waiter does not obtain the key while other waiters are queued for it. So all lockers of a key
    /// should wait in the same way.
    Racing,
}

impl LeaseOptions {
    /// The shortest ttl. With a shorter ttl, ordinary delays of a network would cause losses.
    pub const MIN_TTL: Duration = Duration::from_millis(100);
    /// The longest ttl: a day.
    pub const MAX_TTL: Duration = Duration::from_secs(86_400);

    /// The longest reservation of a key: seven days, since stores remember tokens only for this time.
    pub const MAX_RESERVATION: Duration = Duration::from_secs(7 * 86_400);

    const MIN_PERIOD: Duration = Duration::from_millis(10);

    /// The allowance for late timers, so that a loss is still reported in time.
    const NOTICE: Duration = Duration::from_millis(2);

    /// Makes options for leases that last for `ttl` without a heartbeat.
    ///
    /// The key of a crashed holder is free after this time, or later if the store measures expiry by
    /// observation. A holder that cannot reach the store works for almost the whole ttl.
    ///
    /// # Errors
    ///
    /// If `ttl` is not [`MIN_TTL`](Self::MIN_TTL) to [`MAX_TTL`](Self::MAX_TTL).
    pub fn new(ttl: Duration) -> Result<Self, InvalidInput> {
        Self::check_range("ttl", ttl)?;
        Ok(Self::of(ttl))
    }

    pub(crate) fn of(ttl: Duration) -> Self {
        Self {
            ttl,
            heartbeats_per_ttl: 3,
            clock_rate_error: 0.01,
            grace: ttl / 10,
            poll_interval: Duration::from_secs(1),
            waiting: Waiting::InTurn,
        }
    }

    /// Changes the ttl, and keeps the other options. Shortens a grace that is longer than a quarter
    /// of the ttl.
    ///
    /// # Errors
    ///
    /// If `ttl` is not [`MIN_TTL`](Self::MIN_TTL) to [`MAX_TTL`](Self::MAX_TTL), or too short for
    /// the heartbeats per ttl.
    pub fn with_ttl(mut self, ttl: Duration) -> Result<Self, InvalidInput> {
        Self::check_range("ttl", ttl)?;
        self.ttl = ttl;
        self.grace = self.grace.min(ttl / 4);
        let count = self.heartbeats_per_ttl;
        self.with_heartbeats_per_ttl(count)
    }

    /// Sends `count` heartbeats per ttl: 3 to 100, and at least 10 ms apart. Defaults to 3, so that
    /// two may fail.
    ///
    /// # Errors
    ///
    /// If `count` is out of range, or too large for the ttl.
    pub fn with_heartbeats_per_ttl(mut self, count: u32) -> Result<Self, InvalidInput> {
        if !(3..=100).contains(&count) {
            return Err(InvalidInput::new(format!(
                "{count} heartbeats per ttl are out of range: 3 to 100, so that two may fail"
            )));
        }
        if self.ttl / count < Self::MIN_PERIOD {
            return Err(InvalidInput::new(format!(
                "{count} heartbeats per ttl are too many for a ttl of {:?}: less than 10 ms apart",
                self.ttl
            )));
        }
        self.heartbeats_per_ttl = count;
        Ok(self)
    }

    /// Assumes that the rates of any two clocks differ by at most `error`: 0 to 0.1. Defaults to
    /// 0.01, or 1 %. NTP slews real clocks by 0.05 %.
    ///
    /// # Errors
    ///
    /// If `error` is out of range.
    pub fn with_clock_rate_error(mut self, error: f64) -> Result<Self, InvalidInput> {
        if !(0.0..=0.1).contains(&error) {
            return Err(InvalidInput::new(format!(
                "clock rate error {error} is out of range: 0 to 0.1, as a part of the rate"
            )));
        }
        self.clock_rate_error = error;
        Ok(self)
    }

    /// Cancels work `grace` before the deadline: up to a quarter of the ttl. Defaults to a tenth of
    /// the ttl. See [`Lease::cancelled_on_loss`](crate::Lease::cancelled_on_loss).
    ///
    /// # Errors
    ///
    /// If `grace` is longer than a quarter of the ttl.
    pub fn with_grace(mut self, grace: Duration) -> Result<Self, InvalidInput> {
        if grace > self.ttl / 4 {
            return Err(InvalidInput::new(format!(
                "grace {grace:?} is too long: at most a quarter of the ttl, {:?}",
                self.ttl / 4
            )));
        }
        self.grace = grace;
        Ok(self)
    }

    /// Polls a store that cannot wake waiters every `interval`, plus or minus half of `interval`. The range
    /// is 1 ms to an hour. Defaults to 1 s.
    ///
    /// # Errors
    ///
    /// If `interval` is out of range.
    pub fn with_poll_interval(mut self, interval: Duration) -> Result<Self, InvalidInput> {
        let range = Duration::from_millis(1)..=Duration::from_secs(3600);
        if !range.contains(&interval) {
            return Err(InvalidInput::new(format!(
                "poll interval {interval:?} is out of range: 1 ms to an hour"
            )));
        }
        self.poll_interval = interval;
        Ok(self)
    }

    /// Chooses how a locker waits for a held key. Defaults to [`Waiting::InTurn`], because a
    /// hand-over then costs few requests for any number of waiters.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_core::{LeaseOptions, Waiting};
    ///
    /// let options = LeaseOptions::default().with_waiting(Waiting::Racing);
    /// assert_eq!(options.waiting(), Waiting::Racing);
    /// ```
    #[must_use]
    pub fn with_waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    /// How a locker waits for a held key.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// How long a lease lasts without a heartbeat.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The longest time between two heartbeats.
    pub fn heartbeat_period(&self) -> Duration {
        self.ttl / self.heartbeats_per_ttl
    }

    /// How long a request may take before it counts as unanswered: a third of the ttl, and at most 5 s.
    pub fn request_timeout(&self) -> Duration {
        (self.ttl / 3).min(Duration::from_secs(5))
    }

    /// The time from the cancellation of work to the deadline.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How often waiters poll a store that cannot wake them.
    pub fn poll_interval(&self) -> Duration {
        self.poll_interval
    }

    /// How long a holder may trust a ttl that the store counts from the request or later. The formula is
    /// `ttl · (1 − ρ) − δ`. ρ is the clock rate error, and δ is the store's grain plus 2 ms for timers.
    /// Source: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache
    /// consistency" (1989), with the clock allowance as a rate.
    pub fn trusted(&self, ttl: Duration, grain: Duration) -> Duration {
        let off =
            ttl.mul_f64(self.clock_rate_error).saturating_add(grain).saturating_add(Self::NOTICE);
        ttl.saturating_sub(off)
    }

    pub(crate) fn check_range(what: &str, length: Duration) -> Result<(), InvalidInput> {
        if (Self::MIN_TTL..=Self::MAX_TTL).contains(&length) {
            return Ok(());
        }
        Err(InvalidInput::new(format!(
            "{what} {length:?} is out of range: a {what} is 100 ms to a day"
        )))
    }
}

impl Default for LeaseOptions {
    /// 30 s: longer than a restart of the store, and an acceptable wait after a crash of the holder.
    fn default() -> Self {
        Self::of(Duration::from_secs(30))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_value_is_refused_with_its_rule() {
        let options = LeaseOptions::default;
        let refused = |result: Result<LeaseOptions, InvalidInput>| result.unwrap_err().to_string();

        assert_eq!(
            refused(LeaseOptions::new(Duration::from_secs(1 << 40))),
            "ttl 1099511627776s is out of range: a ttl is 100 ms to a day",
        );
        assert_eq!(
            refused(options().with_heartbeats_per_ttl(2)),
            "2 heartbeats per ttl are out of range: 3 to 100, so that two may fail",
        );
        let short = LeaseOptions::new(Duration::from_millis(100)).unwrap();
        assert_eq!(
            refused(short.with_heartbeats_per_ttl(11)),
            "11 heartbeats per ttl are too many for a ttl of 100ms: less than 10 ms apart",
        );
        assert!(options().with_clock_rate_error(f64::NAN).is_err());
        assert!(options().with_clock_rate_error(-0.1).is_err());
        assert!(options().with_grace(Duration::from_secs(8)).is_err());
        assert!(options().with_poll_interval(Duration::ZERO).is_err());
    }

    #[test]
    fn changed_ttl_keeps_other_options() {
        let options =
            || LeaseOptions::default().with_poll_interval(Duration::from_secs(7)).unwrap();

        let short = options().with_ttl(Duration::from_secs(10)).unwrap();
        assert_eq!(
            (short.ttl(), short.poll_interval()),
            (Duration::from_secs(10), Duration::from_secs(7))
        );
        assert_eq!(
            short.grace(),
            Duration::from_millis(2500),
            "a quarter of the ttl, no longer 3 s"
        );
        assert!(options().with_ttl(Duration::ZERO).is_err());
        let often = options().with_heartbeats_per_ttl(100).unwrap();
        assert!(often.with_ttl(Duration::from_millis(900)).is_err(), "heartbeats 9 ms apart");
    }

    #[test]
    fn lease_is_trusted_for_less_than_its_ttl() {
        let options = LeaseOptions::default();

        let safe = options.trusted(Duration::from_secs(30), Duration::from_millis(1));

        assert_eq!(safe, Duration::from_millis(29_700 - 3));
    }
}
