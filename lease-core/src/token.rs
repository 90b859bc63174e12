//! The fencing token, which orders all grants of a key.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::invalid::InvalidInput;

/// Orders all grants of a key: every grant has a larger token than all earlier grants.
///
/// Send the token with each write that the lease guards. Let the receiver refuse tokens that are smaller
/// than the largest token it has seen: see [`fence`](crate::fence).
///
/// Tokens are below 2⁵³, so JSON, JavaScript and Lua represent them exactly. Tokens need not be
/// consecutive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token: 2⁵³ − 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Wraps a number from a store.
    ///
    /// # Errors
    ///
    /// If `number` is larger than [`MAX`](Self::MAX).
    pub fn new(number: u64) -> Result<Self, InvalidInput> {
        if number > Self::MAX.0 {
            return Err(InvalidInput::new(format!(
                "fencing token {number} is too large: a fencing token is below 2^53"
            )));
        }
        Ok(Self(number))
    }

    /// The token as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = InvalidInput;

    fn try_from(number: u64) -> Result<Self, InvalidInput> {
        Self::new(number)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}
