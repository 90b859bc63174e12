//! Decides when each of many woken waiters makes its attempt.
//!
//! Each waiter that a release wakes draws a slot, the random time of its attempt. So a hand-over
//! takes about two attempts for any number of waiters. See docs/design/022-waiters-that-race.md.

use std::time::Duration;

use crate::settings::random::Random;

#[derive(Debug)]
pub(crate) struct Slots {
    /// The estimated time from an attempt until the other waiters learn that it has obtained the key.
    distance: Duration,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { distance: LONGEST_DISTANCE }
    }

    pub(crate) fn note_attempt(&mut self, took: Duration) {
        self.distance = took.clamp(SHORTEST_DISTANCE, LONGEST_DISTANCE);
    }

    /// Most waiters learn the time of an attempt only from this call.
    pub(crate) fn note_hand_over(&mut self, free: Duration) {
        if free < SHORTEST_DISTANCE {
            // The waiter has learned of the release and of the grant at the same time.
            return;
        }
        let distance = free.mul_f64(1.0 / (1.0 + FIRST_SLOT));
        let distance = distance.clamp(SHORTEST_DISTANCE, LONGEST_DISTANCE);
        self.distance = (self.distance * 3 + distance) / 4;
    }

    /// `woken` is the number of watches that the release woke.
    pub(crate) fn draw(&self, woken: Option<u64>, random: &Random) -> Duration {
        let Some(woken) = woken.filter(|woken| *woken > FEW) else { return Duration::ZERO };
        let woken = f64::from(u32::try_from(woken).unwrap_or(u32::MAX));
        // On average, one waiter makes its attempt at once. The other attempts begin at a rate of
        // one per distance. This rate grows by a factor of e in `GROWTH` distances, because some of
        // the counted waiters have gone.
        let place = (random.unit() * woken - AT_ONCE).max(0.0);
        self.distance.mul_f64(GROWTH * (1.0 + place / GROWTH).ln())
    }
}

const FEW: u64 = 2;

/// The mean number of waiters that make an attempt at once. With zero, a locker that claims the key
/// right after its release would always be first.
const AT_ONCE: f64 = 1.0;

/// The number of distances in which the rate of attempts grows by a factor of e. A larger value loses time
/// if many waiters have gone.
const GROWTH: f64 = 4.0;

/// The mean time until the first of many slots, in distances.
const FIRST_SLOT: f64 = 0.31;

const SHORTEST_DISTANCE: Duration = Duration::from_micros(200);

const LONGEST_DISTANCE: Duration = Duration::from_millis(50);
