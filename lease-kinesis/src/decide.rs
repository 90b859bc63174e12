//! What a worker does at a tick: the lines of the plan that are its own.

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{LeaseKey, Lessee};

/// What one worker has to do, so that the plan comes true.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Free, and planned for it.
    pub(crate) claim: Vec<LeaseKey>,
    /// Held by it, and planned for another; or for nobody, where nobody else is there.
    pub(crate) give: Vec<(LeaseKey, Option<Lessee>)>,
    /// Planned for it, and held by another, who will hand it over.
    pub(crate) expect: Vec<LeaseKey>,
}

/// Compares who has what with who should have it, for the worker `me` that reads `reading`.
///
/// Nobody takes what another holds: of a worker that is gone, the leases run out.
pub(crate) fn decide(
    me: &Lessee,
    reading: &BTreeSet<LeaseKey>,
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
    planned: &BTreeMap<LeaseKey, Lessee>,
) -> Decision {
    let mut decision = Decision::default();
    for (key, holder) in held {
        let to = planned.get(key);
        if reading.contains(key) {
            if to != Some(me) {
                decision.give.push((key.clone(), to.cloned()));
            }
        } else if to == Some(me) {
            match holder {
                None => decision.claim.push(key.clone()),
                Some(_) => decision.expect.push(key.clone()),
            }
        }
    }
    decision
}
