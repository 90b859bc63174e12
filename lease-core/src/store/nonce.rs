//! The number that identifies one attempt.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use rand::TryRng;
use rand::rngs::{SysError, SysRng};
use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

use crate::clock::{BootClock, Clock, Moment};

/// Identifies one logical attempt, with all its retries and late duplicates.
///
/// 128 bits, random but for the mark of a UUID. If a store's record has the nonce of a claim, the store has
/// granted that claim before, and the reply was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(Uuid);

impl Nonce {
    /// A random nonce from the operating system.
    ///
    /// # Panics
    ///
    /// If the operating system provides no random bytes.
    #[expect(clippy::expect_used, reason = "as documented; a locker returns an error instead")]
    pub fn random() -> Self {
        Self(system_uuid().expect("the operating system gives random bytes"))
    }

    /// Wraps 128 bits, which must be unique.
    pub fn new(unique: Uuid) -> Self {
        Self(unique)
    }

    /// The nonce as a UUID.
    pub fn get(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// 122 random bits from the operating system, and the 6 bits that mark a random UUID.
///
/// One call of the operating system takes as long as a tenth of a lease, so each draws the bytes of many nonces.
/// `fork(2)` and a snapshot of a machine copy the rest of the bytes, and both copies would claim under the same
/// nonces. So the rest is discarded after a millisecond. Only a process that was copied within a millisecond of
/// a claim can repeat a nonce. Such a copy is not safe with fresh bytes either: it also has the nonces of
/// the claims in flight and of the leases.
pub(crate) fn system_uuid() -> Result<Uuid, SysError> {
    static ENTROPY: Mutex<Entropy> = Mutex::new(Entropy::EMPTY);

    let now = BootClock::new().now();
    let bytes = ENTROPY.lock().take(now, |bytes| SysRng.try_fill_bytes(bytes))?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

/// Random bytes that were drawn together.
struct Entropy {
    bytes: [[u8; 16]; DRAWN],
    /// How many of them are left.
    left: usize,
    drawn: Moment,
}

impl Entropy {
    const EMPTY: Self = Self { bytes: [[0; 16]; DRAWN], left: 0, drawn: Moment::from_nanos(0) };

    /// The bytes of the next nonce. `draw` fills its argument with random bytes.
    fn take<E>(
        &mut self,
        now: Moment,
        draw: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<[u8; 16], E> {
        if self.left == 0 || now < self.drawn || now >= self.drawn + KEPT {
            self.left = 0;
            draw(self.bytes.as_flattened_mut())?;
            (self.left, self.drawn) = (DRAWN, now);
        }
        self.left -= 1;
        // In range: `left` is at most `DRAWN`.
        Ok(self.bytes.get(self.left).copied().unwrap_or_default())
    }
}

/// The number of nonces that one call of the operating system draws.
const DRAWN: usize = 16;

/// How long drawn bytes are used.
const KEPT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000);

    fn random(bytes: &mut [u8]) -> Result<(), SysError> {
        SysRng.try_fill_bytes(bytes)
    }

    fn copy(entropy: &Entropy) -> Entropy {
        Entropy { ..*entropy }
    }

    #[test]
    fn nonces_differ() {
        let mut entropy = Entropy::EMPTY;
        let nonces: HashSet<_> = (0..1_000).map(|_| entropy.take(START, random).unwrap()).collect();

        assert_eq!(nonces.len(), 1_000);
    }

    #[test]
    fn copied_process_draws_other_nonces_after_a_millisecond() {
        let mut parent = Entropy::EMPTY;
        parent.take(START, random).unwrap();
        let mut child = copy(&parent);

        let later = START + KEPT;

        assert_ne!(parent.take(later, random).unwrap(), child.take(later, random).unwrap());
    }

    #[test]
    fn clock_that_went_back_draws_again() {
        let mut parent = Entropy::EMPTY;
        parent.take(START, random).unwrap();
        let mut child = copy(&parent);

        let earlier = START - KEPT;

        assert_ne!(parent.take(earlier, random).unwrap(), child.take(earlier, random).unwrap());
    }

    #[test]
    fn failed_draw_leaves_no_bytes() {
        let mut entropy = Entropy::EMPTY;
        entropy.take(START, random).unwrap();

        assert_eq!(entropy.take(START + KEPT, |_| Err("no entropy")), Err("no entropy"));
        assert_eq!(entropy.take(START, |_| Err("no entropy")), Err("no entropy"));
    }
}
