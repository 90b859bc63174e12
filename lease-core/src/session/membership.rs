//! The state that the claims under one session share: the session, unanswered claims, and proofs.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::acquire::unsettled::ClaimCleanup;
use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::lease_cell::LeaseCell;
use crate::key::LeaseKey;
use crate::store::grant::Claim;
use crate::store::session::{Ended, Parent, Vacancy};

/// The session of a locker.
pub(crate) struct Membership {
    pub(crate) cell: Arc<LeaseCell>,
    pub(crate) parent: Parent,
    /// Unanswered claims. Several tasks may each leave a claim of the same key.
    unsettled: Mutex<HashMap<LeaseKey, Vec<UnsettledChild>>>,
    /// The last proof for each session that has ended. A crashed process leaves many keys under one session.
    proofs: Mutex<HashMap<LeaseKey, Ended>>,
}

/// A claim under a session, with an unknown outcome. It is repeated with the same nonce and vacancy.
#[derive(Debug, Clone)]
pub(crate) struct UnsettledChild {
    pub(crate) claim: Claim,
    pub(crate) vacancy: Vacancy,
    /// Repeats the claim until its outcome is known.
    pub(crate) clearing: Arc<ClaimCleanup>,
}

impl Membership {
    pub(crate) fn new(cell: Arc<LeaseCell>) -> Self {
        let parent = Parent::from(&cell.grant);
        Self { cell, parent, unsettled: Mutex::default(), proofs: Mutex::default() }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.cell.ending().is_some()
    }

    /// Returns an error if the session has ended, so that no attempt follows.
    pub(crate) fn refuse_if_over(&self) -> Result<(), StoreError> {
        if !self.is_over() {
            return Ok(());
        }
        let text = format!("the session {} of this locker has ended", self.parent.key);
        Err(StoreError::new(StoreErrorKind::Refused, text))
    }

    pub(crate) fn put(&self, unsettled: UnsettledChild) {
        self.unsettled.lock().entry(unsettled.claim.key.clone()).or_default().push(unsettled);
    }

    /// Removes and returns the latest unanswered claim of `key`.
    pub(crate) fn take(&self, key: &LeaseKey) -> Option<UnsettledChild> {
        self.take_if(key, |_any| true)
    }

    /// Removes `claim`. Returns whether it was present: an attempt may have taken it over.
    pub(crate) fn remove(&self, claim: &Claim) -> bool {
        self.take_if(&claim.key, |kept| kept.claim.nonce == claim.nonce).is_some()
    }

    fn take_if(
        &self,
        key: &LeaseKey,
        is_meant: impl Fn(&UnsettledChild) -> bool,
    ) -> Option<UnsettledChild> {
        let mut unsettled = self.unsettled.lock();
        let of_key = unsettled.get_mut(key)?;
        let taken = of_key.remove(of_key.iter().rposition(is_meant)?);
        if of_key.is_empty() {
            unsettled.remove(key);
        }
        Some(taken)
    }

    /// Returns the proof that `session` has ended, if it is known.
    pub(crate) fn proof(&self, session: &Parent) -> Option<Ended> {
        // If `session` is a former session with the same key, the grant of this session proves its end.
        if let Some(proof) = Ended::by_successor(session, &self.cell.grant) {
            return Some(proof);
        }
        self.proofs.lock().get(&session.key).filter(|ended| ended.session() == session).cloned()
    }

    pub(crate) fn learn(&self, proof: &Ended) {
        let mut proofs = self.proofs.lock();
        if proofs.len() >= MOST_PROOFS {
            proofs.clear();
        }
        proofs.insert(proof.session().key.clone(), proof.clone());
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("parent", &self.parent).finish_non_exhaustive()
    }
}

const MOST_PROOFS: usize = 1024;
