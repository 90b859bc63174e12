//! The network faults of one contender: random, and reproducible by a seed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::conformance::kit::faulty::{Call, Fault};

/// The network of one contender. One request in five has a fault.
#[derive(Clone)]
pub struct NetworkFaults(Arc<Mutex<FaultState>>);

struct FaultState {
    random: StdRng,
    longest_delay: Duration,
    silence: Option<Silence>,
    stopped: bool,
}

/// A time in which the network loses every heartbeat, or the answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a request arrives or it does not")]
pub enum Silence {
    /// No heartbeat arrives at the store.
    RequestsLost,
    /// Each heartbeat arrives at the store, but its answer is lost.
    AnswersLost,
}

impl NetworkFaults {
    /// Makes faults that `seed` determines, with delays of up to `longest_delay`.
    pub fn new(seed: u64, longest_delay: Duration) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let state = FaultState { random, longest_delay, silence: None, stopped: false };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Chooses the fault of the next request; `None` if it has none.
    pub fn next_fault(&self, call: Call) -> Option<Fault> {
        let mut state = self.state();
        if state.stopped {
            return None;
        }
        match (call, state.silence) {
            (Call::Heartbeat, Some(Silence::RequestsLost)) => return Some(Fault::Fail),
            (Call::Heartbeat, Some(Silence::AnswersLost)) => return Some(Fault::HangReply),
            _ => (),
        }
        let delay = state.longest_delay.mul_f64(state.random.random_range(0.0..1.0));
        match state.random.random_range(0..40) {
            0 => Some(Fault::Fail),
            1 => Some(Fault::Hang),
            2 => Some(Fault::LoseReply),
            3 => Some(Fault::HangReply),
            4 => Some(Fault::DelayRequest(delay)),
            5 => Some(Fault::DelayReply(delay)),
            6 => Some(Fault::ApplyLate(delay)),
            7 => Some(Fault::Double(delay)),
            _ => None,
        }
    }

    /// Begins `silence`. `None` ends the current silence.
    pub fn silence_heartbeats(&self, silence: Option<Silence>) {
        self.state().silence = silence;
    }

    /// Ends all faults permanently.
    pub fn stop(&self) {
        self.state().stopped = true;
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.0.lock()
    }
}

impl fmt::Debug for NetworkFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkFaults").finish_non_exhaustive()
    }
}
