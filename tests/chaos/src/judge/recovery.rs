//! Checks that all keys are granted again after the last fault.

use std::sync::Mutex;
use std::time::Duration;

use lease_test_servers::sync::lock;
use tokio::time::sleep;

use super::ledger::Ledger;
use super::safety::{Finding, starved};
use crate::monotonic::Monotonic;
use crate::setup::Setup;

pub(crate) async fn await_recovery(setup: &Setup, ledger: &Mutex<Ledger>) -> Vec<Finding> {
    let ended = Monotonic::now();
    let mut hungry: Vec<_> = (0..setup.counters).collect();
    while !hungry.is_empty() && Monotonic::now().since(ended) < RECOVERY {
        sleep(Duration::from_millis(50)).await;
        hungry.retain(|&counter| !lock(ledger).held_since(ended, counter));
    }
    let now = Monotonic::now();
    hungry.iter().map(|&counter| starved(counter, ended, now)).collect()
}

/// Covers the ttl of the last lease, a rejoin delay, and a clock that was set back, on a busy
/// machine.
const RECOVERY: Duration = Duration::from_mins(2);
