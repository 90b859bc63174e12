//! The result of one attempt to obtain a key.

use crate::lease::Lease;
use crate::store::grant::Holder;

/// The result of one attempt to obtain a key.
#[derive(Debug)]
#[must_use = "a lease that is dropped is released: bind it to a name, since `let _ =` drops it"]
#[expect(clippy::exhaustive_enums, reason = "a key is obtained or held: match on both")]
pub enum Attempt {
    /// The key is obtained. Dropping the lease releases it.
    Obtained(Lease),
    /// The key is held by another lessee, or by another task of this lessee. Leases are not re-entrant.
    Held(Holder),
}

impl Attempt {
    /// Returns the lease, if the key was obtained.
    #[must_use = "dropping a lease releases it: bind it to a name, since `let _ =` drops it"]
    pub fn into_lease(self) -> Option<Lease> {
        match self {
            Self::Obtained(lease) => Some(lease),
            Self::Held(_) => None,
        }
    }
}
