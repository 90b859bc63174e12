//! The counters that workers share, each behind a gate that refuses old tokens.

use std::sync::{Arc, Mutex, MutexGuard};

use lease_core::FencingToken;
use lease_core::fence::Gate;
use lease_test_servers::sync::lock;

use crate::judge::ledger::{Incarnation, Ledger, Write};
use crate::monotonic::Monotonic;

/// The supervisor keeps the counters and a log of all writes.
#[derive(Debug)]
pub(crate) struct Resource {
    counters: Vec<Gate<u64>>,
    gates: Gates,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gates {
    Shut,
    Open,
}

impl Resource {
    pub(crate) fn new(counters: usize, gates: Gates, ledger: Arc<Mutex<Ledger>>) -> Self {
        let counters = (0..counters).map(|_| Gate::default()).collect();
        Self { counters, gates, ledger }
    }

    /// Sets the counter to `read` plus one, or leaves the counter unchanged if `read` is `None`.
    /// Returns `None` if the gate refuses the token.
    ///
    /// The counter is not compared with `read`: the leases and the gate must prevent lost updates.
    pub(crate) fn write(
        &self,
        incarnation: Incarnation,
        counter: usize,
        token: u64,
        read: Option<u64>,
        sent: Option<Monotonic>,
    ) -> Option<u64> {
        let gate = self.counters.get(counter)?;
        let shown = match self.gates {
            Gates::Shut => token,
            Gates::Open => FencingToken::MAX.get(),
        };
        // The lock keeps the writes in the log in the order of the gate's decisions.
        let mut ledger = self.ledger();
        let written = FencingToken::new(shown).ok().and_then(|shown| {
            let write = |value: &mut u64| {
                *value = read.map_or(*value, |read| read + 1);
                *value
            };
            gate.write(shown, write).ok()
        });
        let at = Monotonic::now();
        let accepted = written.is_some();
        ledger.writes.push(Write { counter, token, incarnation, read, sent, at, accepted });
        written
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}
