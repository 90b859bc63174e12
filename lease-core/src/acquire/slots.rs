//! Decides when each of many woken waiters makes its attempt.
//!
//! A release wakes all waiters, but only one of them obtains the key. If each of them made an attempt at once,
//! the number of attempts for one hand-over would grow with the number of waiters. So each waiter draws a slot:
//! a random time, such that the attempts of all waiters follow each other as fast as one of them is answered. A
//! waiter gives its slot up if it learns that the key was taken. So about two attempts are made, and none
//! is missing: if no other waiter obtains the key, the slot ends.
//!
//! The number of waiters may be too large, since some of them have gone. So the slots are closer to each other
//! the later they are.

use std::time::Duration;

use crate::settings::random::Random;

/// What one waiter knows of the time that an attempt takes.
#[derive(Debug)]
pub(crate) struct Slots {
    /// About the time from an attempt until the other waiters learn that it has obtained the key.
    distance: Duration,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { distance: LONGEST_DISTANCE }
    }

    /// Notes that an attempt of this waiter was answered after `took`.
    pub(crate) fn note_attempt(&mut self, took: Duration) {
        self.distance = took.clamp(SHORTEST_DISTANCE, LONGEST_DISTANCE);
    }

    /// Notes that another waiter obtained the key, which was free for `free`.
    ///
    /// This time is that of the first slot and of one attempt. So the distance of all waiters approaches
    /// the time of an attempt, although few of them make one.
    pub(crate) fn note_hand_over(&mut self, free: Duration) {
        if free < SHORTEST_DISTANCE {
            // The waiter has learned both at once.
            return;
        }
        let distance = free.mul_f64(1.0 / (1.0 + FIRST_SLOT));
        let distance = distance.clamp(SHORTEST_DISTANCE, LONGEST_DISTANCE);
        self.distance = (self.distance * 3 + distance) / 4;
    }

    /// The time until the slot of this waiter, which was woken together with all `woken` watches. Zero for an
    /// attempt at once.
    pub(crate) fn draw(&self, woken: Option<u64>, random: &Random) -> Duration {
        let Some(woken) = woken.filter(|woken| *woken > FEW) else { return Duration::ZERO };
        // More waiters than this make no difference.
        let woken = f64::from(u32::try_from(woken).unwrap_or(u32::MAX));
        // The slot's place in the order of all slots. One waiter, on average, makes its attempt at once. Then the
        // attempts of all others begin at a rate of one per distance, which grows by a factor of e in `GROWTH`
        // distances.
        let place = (random.unit() * woken - AT_ONCE).max(0.0);
        self.distance.mul_f64(GROWTH * (1.0 + place / GROWTH).ln())
    }
}

/// So many waiters all make an attempt at once.
const FEW: u64 = 2;

/// The mean number of attempts at once. Without them, a locker that claims the key again as soon as it has released
/// it would always go before all others.
const AT_ONCE: f64 = 1.0;

/// The distances in which the rate of attempts grows by a factor of e. A smaller number makes more attempts, and
/// a larger one loses more time if the number of waiters is too large.
const GROWTH: f64 = 4.0;

/// The mean time until the first of many slots, in distances.
const FIRST_SLOT: f64 = 0.31;

/// As long as an attempt on loopback takes.
const SHORTEST_DISTANCE: Duration = Duration::from_micros(200);

const LONGEST_DISTANCE: Duration = Duration::from_millis(50);
