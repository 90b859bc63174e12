//! What tells one attempt from every other.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::random::system_uuid;

/// Tells one logical attempt from every other, all its retries and late duplicates included.
///
/// 128 random bits. A store that finds its own record carrying this nonce knows that the claim
/// was granted before and only the reply was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(Uuid);

impl Nonce {
    /// A random nonce from the operating system.
    ///
    /// # Panics
    ///
    /// If the operating system has no randomness to give.
    #[expect(clippy::expect_used, reason = "as documented; a locker returns an error instead")]
    pub fn random() -> Self {
        Self(system_uuid().expect("the operating system gives random bytes"))
    }

    /// Wraps 128 bits, which nobody may have used before.
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
