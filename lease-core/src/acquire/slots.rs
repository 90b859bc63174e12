//! Decides when each of many woken waiters makes its attempt.
//!
//! A release wakes all waiters, but only one of them obtains the key. If each of them made an attempt at once,
//! the number of attempts for one hand-over would grow with the number of waiters. So each waiter draws a
//! slot, the random time of its attempt. On average, each attempt begins when the one before it is answered.
//! A waiter gives its slot up if it learns that the key was taken. So a hand-over takes about two attempts,
//! and at least one: if no waiter obtains the key, the next slot follows.
//!
//! The reported number of waiters may be too large, since some of them have gone. So later slots are closer
//! to each other.

use std::time::Duration;

use crate::settings::random::Random;

/// One waiter's estimate of the time that an attempt takes.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The estimated time from an attempt until the other waiters learn that it has obtained the key.
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
    /// The key is free until the first slot begins and its attempt is answered. So the distances of all
    /// waiters approach the time of an attempt, although few waiters make attempts.
    pub(crate) fn note_hand_over(&mut self, free: Duration) {
        if free < SHORTEST_DISTANCE {
            // The waiter has learned of the release and of the grant at the same time.
            return;
        }
        let distance = free.mul_f64(1.0 / (1.0 + FIRST_SLOT));
        let distance = distance.clamp(SHORTEST_DISTANCE, LONGEST_DISTANCE);
        self.distance = (self.distance * 3 + distance) / 4;
    }

    /// Returns the time until the slot of this waiter. `woken` is the number of watches that the release
    /// woke. Zero means an attempt at once.
    pub(crate) fn draw(&self, woken: Option<u64>, random: &Random) -> Duration {
        let Some(woken) = woken.filter(|woken| *woken > FEW) else { return Duration::ZERO };
        // The limit of `u32` makes no difference: no key has so many waiters.
        let woken = f64::from(u32::try_from(woken).unwrap_or(u32::MAX));
        // The slot's place in the order of all slots. One waiter, on average, makes its attempt at once. Then the
        // attempts of all others begin at a rate of one per distance. This rate grows by a factor of e in
        // `GROWTH` distances.
        let place = (random.unit() * woken - AT_ONCE).max(0.0);
        self.distance.mul_f64(GROWTH * (1.0 + place / GROWTH).ln())
    }
}

/// Up to this number, all waiters make an attempt at once.
const FEW: u64 = 2;

/// The mean number of waiters that make their attempt at once. Without them, a locker that claims the key
/// right after its release would always come before all others.
const AT_ONCE: f64 = 1.0;

/// The number of distances in which the rate of attempts grows by a factor of e. A smaller value causes more
/// attempts. A larger value loses more time if the number of waiters is too large.
const GROWTH: f64 = 4.0;

/// The mean time until the first of many slots, in distances.
const FIRST_SLOT: f64 = 0.31;

/// The shortest distance, which is the duration of an attempt on loopback.
const SHORTEST_DISTANCE: Duration = Duration::from_micros(200);

const LONGEST_DISTANCE: Duration = Duration::from_millis(50);
