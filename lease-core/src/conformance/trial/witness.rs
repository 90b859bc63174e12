//! Observes leases for the ledger.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::ledger::{Ledger, Notices};
use crate::heartbeat::ending::LeaseState;
use crate::heartbeat::lease_cell::LeaseCell;
use crate::lease::Lease;

/// Observes when leases are held, and when their loss is reported.
#[derive(Clone)]
pub struct Witness {
    ledger: Ledger,
    seen: Arc<Mutex<Seen>>,
}

type Seen = Vec<(usize, Arc<LeaseCell>)>;

impl Witness {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self { ledger, seen: Arc::default() }
    }

    /// Observes `lease` until its end. Call this as soon as you have the lease.
    pub fn watch(&self, lease: &Lease) {
        let cell = Arc::clone(&lease.cell);
        let tenure = self.ledger.begin(&cell.grant);
        let mut state = cell.state();
        self.seen().push((tenure, cell));
        let ledger = self.ledger.clone();
        tokio::spawn(async move {
            let lost = |state: &LeaseState| matches!(state, LeaseState::Lost(_));
            if state.wait_for(lost).await.is_ok() {
                ledger.notified(tenure);
            }
        });
    }

    /// The ledger of the trial.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn sees_any(&self) -> bool {
        !self.seen().is_empty()
    }

    pub(super) fn look(&self, notices: Notices) {
        self.seen().retain(|(tenure, cell)| self.ledger.look_at(*tenure, cell, notices));
    }

    pub(super) fn killed(&self) {
        for (tenure, _) in self.seen().drain(..) {
            self.ledger.killed(tenure);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}
