//! What the workers share: counters, each behind a gate that refuses old tokens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::FencingToken;
use lease_core::fence::Gate;

use crate::ledger::{Ledger, Life, Write};
use crate::stamp::Stamp;

/// Counters, and the log of all who wanted to write to them. Outside of all workers: it knows
/// tokens only.
#[derive(Debug)]
pub(crate) struct Resource {
    counters: Vec<Gate<u64>>,
    gates: Gates,
    ledger: Arc<Mutex<Ledger>>,
}

/// Whether tokens are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gates {
    Shut,
    /// Everything is written, as where nobody thought of fencing.
    Open,
}

impl Resource {
    pub(crate) fn new(counters: usize, gates: Gates, ledger: Arc<Mutex<Ledger>>) -> Self {
        let counters = (0..counters).map(|_| Gate::default()).collect();
        Self { counters, gates, ledger }
    }

    /// Sets the counter to one more than `read`, whatever it is by now; without `read`, leaves
    /// it as it is. Answers its value, or `None` where the token is refused.
    ///
    /// No comparison: that no update is lost is for the leases and the gate to ensure.
    pub(crate) fn write(
        &self,
        life: Life,
        counter: usize,
        token: u64,
        read: Option<u64>,
        sent: Option<Stamp>,
    ) -> Option<u64> {
        let gate = self.counters.get(counter)?;
        let shown = match self.gates {
            Gates::Shut => token,
            // The largest there is: never refused.
            Gates::Open => FencingToken::MAX.get(),
        };
        // Held while the gate is asked, so that the log has the order of the writes.
        let mut ledger = self.ledger();
        let written = FencingToken::new(shown).ok().and_then(|shown| {
            let write = |value: &mut u64| {
                *value = read.map_or(*value, |read| read + 1);
                *value
            };
            gate.write(shown, write).ok()
        });
        let at = Stamp::now();
        let accepted = written.is_some();
        ledger.writes.push(Write { counter, token, life, read, sent, at, accepted });
        written
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
