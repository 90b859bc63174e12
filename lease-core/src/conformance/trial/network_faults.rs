//! What befalls the requests of one contender: chance, all of it from a seed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Call, Fault};

/// The network of one contender: a fault for every fifth request, and silences. Clones are the
/// same weather.
#[derive(Clone)]
pub struct Weather(Arc<Mutex<Sky>>);

struct Sky {
    random: StdRng,
    longest_delay: Duration,
    silence: Option<Silence>,
    clear: bool,
}

/// What happens to every heartbeat for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a request arrives or it does not")]
pub enum Silence {
    /// None arrives.
    NotHeard,
    /// Each arrives, and no answer does.
    NotAnswered,
}

impl Weather {
    /// Weather by `seed`; requests and answers are late by up to `longest_delay`.
    pub fn new(seed: u64, longest_delay: Duration) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self(Arc::new(Mutex::new(Sky { random, longest_delay, silence: None, clear: false })))
    }

    /// What befalls the next request.
    pub fn befalls(&self, call: Call) -> Option<Fault> {
        let mut sky = self.sky();
        if sky.clear {
            return None;
        }
        match (call, sky.silence) {
            (Call::Heartbeat, Some(Silence::NotHeard)) => return Some(Fault::Fail),
            (Call::Heartbeat, Some(Silence::NotAnswered)) => return Some(Fault::HangReply),
            _ => (),
        }
        let late = sky.longest_delay.mul_f64(sky.random.random_range(0.0..1.0));
        match sky.random.random_range(0..40) {
            0 => Some(Fault::Fail),
            1 => Some(Fault::Hang),
            2 => Some(Fault::LoseReply),
            3 => Some(Fault::HangReply),
            4 => Some(Fault::DelayRequest(late)),
            5 => Some(Fault::DelayReply(late)),
            6 => Some(Fault::ApplyLate(late)),
            7 => Some(Fault::Double(late)),
            _ => None,
        }
    }

    /// Silences every heartbeat, or ends the silence.
    pub fn silence(&self, silence: Option<Silence>) {
        self.sky().silence = silence;
    }

    /// Nothing befalls anything any more.
    pub fn clear(&self) {
        self.sky().clear = true;
    }

    fn sky(&self) -> MutexGuard<'_, Sky> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weather").finish_non_exhaustive()
    }
}
