//! Who sees for how long leases say that they are held.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ledger::Ledger;
use crate::hold::{Hold, LeaseState};
use crate::lease::Lease;

/// Sees for how long leases say that they are held, and when their loss is told.
#[derive(Clone)]
pub struct Witness {
    ledger: Ledger,
    seen: Arc<Mutex<Seen>>,
}

/// Leases that go on, and the tenures that they are in the ledger.
type Seen = Vec<(usize, Arc<Hold>)>;

/// By when a process has to have noticed that a deadline has passed. That takes a timer; those of
/// a suspended machine have stood still, so after waking up leases look at the clock again within
/// a heartbeat period, and whenever they are asked or polled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notices {
    pub(super) woken_at: Duration,
    pub(super) within: Duration,
}

impl Witness {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self { ledger, seen: Arc::default() }
    }

    /// Follows `lease` to its end. Call it as soon as you have it.
    pub fn watch(&self, lease: &Lease) {
        let hold = Arc::clone(&lease.hold);
        let tenure = self.ledger.begin(&hold.grant);
        let mut state = hold.state();
        self.seen().push((tenure, hold));
        let ledger = self.ledger.clone();
        tokio::spawn(async move {
            let lost = |state: &LeaseState| matches!(state, LeaseState::Lost(_));
            if state.wait_for(lost).await.is_ok() {
                ledger.told(tenure);
            }
        });
    }

    /// The trial's notebook, by the time of this process.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn sees_any(&self) -> bool {
        !self.seen().is_empty()
    }

    /// Looks at all leases that go on; called in their process.
    pub(super) fn look(&self, notices: Notices) {
        self.seen().retain(|(tenure, hold)| self.ledger.look_at(*tenure, hold, notices));
    }

    pub(super) fn killed(&self) {
        for (tenure, _) in self.seen().drain(..) {
            self.ledger.killed(tenure);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}
