//! The number that identifies one attempt.

use std::fmt;

use rand::TryRng;
use rand::rngs::{SysError, SysRng};
use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

/// Identifies one logical attempt, with all its retries and late duplicates.
///
/// A nonce is a random UUID. If a store's record has the nonce of a claim, the store has granted that claim
/// before, and the reply was lost.
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

/// Each call reads new bytes: `fork(2)` and a snapshot of a machine would copy bytes that were read
/// before. Both copies would then claim under the same nonces.
pub(crate) fn system_uuid() -> Result<Uuid, SysError> {
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes)?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}
