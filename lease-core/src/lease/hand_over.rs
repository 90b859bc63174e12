//! A lease that is handed over to another process.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::invalid::InvalidInput;
use crate::key::LeaseKey;
use crate::store::grant::Grant;
use crate::token::FencingToken;

/// A lease that was handed over and not yet resumed. Its text form, JSON, can be sent to another process.
///
/// [`Lease::hand_over`](crate::Lease::hand_over) makes the hand-over.
/// [`Locker::resume`](crate::Locker::resume) resumes the hand-over, at most once. Any process with the text
/// can obtain the lease.
///
/// # Examples
///
/// ```
/// use lease_core::HandOver;
///
/// let refused = "{\"key\": \"\"}".parse::<HandOver>().unwrap_err();
/// assert!(refused.to_string().starts_with("hand-over cannot be read"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HandOver {
    grant: Grant,
}

impl HandOver {
    pub(crate) fn new(grant: Grant) -> Self {
        Self { grant }
    }

    /// The key that is handed over.
    pub fn key(&self) -> &LeaseKey {
        &self.grant.key
    }

    /// The token of the former holder. The resumed lease has a larger token.
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    pub(crate) fn into_grant(self) -> Grant {
        self.grant
    }
}

impl fmt::Display for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_unwritable| fmt::Error)?)
    }
}

impl FromStr for HandOver {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        serde_json::from_str(text).map_err(|error| {
            InvalidInput::new(format!(
                "hand-over cannot be read, since the text is not a hand-over: {error}"
            ))
        })
    }
}
