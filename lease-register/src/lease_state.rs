//! The state of a lease: by observation, and by the clock of the service.

use std::time::Duration;

use lease_core::LeaseKey;
use lease_core::store::{ServerNow, Timestamp};

use crate::observed::Observed;
use crate::record::Record;
use crate::register::Register;
use crate::store::RegisterStore;

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Free,
    /// No holder, and reserved for this long.
    Reserved(Duration),
    /// Held for this long.
    Held(Duration),
    /// The lease has expired: the next claim takes the key.
    Expired,
}

impl<R: Register> RegisterStore<R> {
    /// Returns the state of a record that was received now or earlier.
    ///
    /// The holder's deadline counts from before its last request. So the lease has expired if its record was
    /// unchanged for a ttl, counted from the first receipt.
    pub(crate) fn state(&self, key: &LeaseKey, record: &Record) -> LeaseState {
        let shared = &self.shared;
        let (length, until) = match (&record.holder, &record.reserved) {
            (Some(held), _) => {
                let margin = shared.settings.margin;
                let until = held.expires_at.map(|at| Timestamp::from_millis(at).plus(margin));
                (held.ttl, until)
            }
            // Exclusion does not depend on a reservation: it needs no margin.
            (None, Some(reserved)) => (reserved.length, reserved.until.map(Timestamp::from_millis)),
            (None, None) => {
                shared.observations.forget(key.as_str());
                return LeaseState::Free;
            }
        };
        let length = length.min(LONGEST);
        let now = shared.settings.clock.now();
        let since = shared.observations.observe(key.as_str(), record.observed(), Some(length), now);
        let error = shared.settings.clock_rate_error;
        let by_observation = length.mul_f64(1.0 + error).saturating_sub(now.since(since));
        let by_time = self.server_now().zip(until).map(|(now, until)| {
            let left = until.since(now.lowest);
            left.div_f64(1.0 - error)
        });
        let left = by_time.map_or(by_observation, |by_time| by_time.min(by_observation));
        match (&record.holder, left.is_zero()) {
            (Some(_), false) => LeaseState::Held(left),
            (Some(_), true) => LeaseState::Expired,
            (None, false) => LeaseState::Reserved(left),
            (None, true) => LeaseState::Free,
        }
    }

    /// When a length that begins now has passed, by the clock of the service, in milliseconds since 1970.
    pub(crate) fn after(&self, length: Duration) -> Option<u64> {
        Some(self.server_now()?.highest.plus(length).as_millis_up())
    }

    pub(crate) fn server_now(&self) -> Option<ServerNow> {
        self.shared.register.clock()?.now()
    }
}

impl Record {
    fn observed(&self) -> Observed {
        let (nonce, beat) = match (&self.holder, &self.former) {
            (Some(held), _) => (Some(held.nonce), Some(held.beat)),
            (None, former) => (former.as_ref().map(|former| former.nonce), None),
        };
        Observed { token: self.token(), nonce, beat }
    }
}

/// 584 years, the longest time between two moments. A factor close to 1 cannot make it overflow.
const LONGEST: Duration = Duration::from_nanos(u64::MAX);
