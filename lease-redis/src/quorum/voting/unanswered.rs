//! The first proposals of claims that got no answer. A repetition names this proposal to the nodes.

use std::collections::HashMap;

use lease_core::FencingToken;
use lease_core::store::{Claim, Moment, Nonce, RequestNumber};
use parking_lot::Mutex;

/// The calls of these claims ended with an error, or were dropped. So none of their proposals was granted to a lessee.
#[derive(Debug, Default)]
pub(crate) struct UnansweredClaims {
    claims: Mutex<HashMap<Nonce, Unanswered>>,
}

#[derive(Debug, Clone, Copy)]
struct Unanswered {
    first: FencingToken,
    /// The votes expire earlier.
    until: Moment,
}

/// The proposals of one call. Unless [answered](Self::answer), they are stored for a repetition of the claim.
#[derive(Debug)]
pub(crate) struct Proposed<'a> {
    unanswered: &'a UnansweredClaims,
    claim: &'a Claim,
    first: Option<FencingToken>,
    began: Moment,
}

impl UnansweredClaims {
    pub(crate) fn begin<'a>(&'a self, claim: &'a Claim, now: Moment) -> Proposed<'a> {
        let repeats = claim.request != RequestNumber::FIRST;
        let earlier = if repeats { self.claims.lock().remove(&claim.nonce) } else { None };
        let first = earlier.filter(|earlier| earlier.until > now).map(|earlier| earlier.first);
        Proposed { unanswered: self, claim, first, began: now }
    }

    /// Without an entry, the votes of a repetition may prevent a restore of another lease.
    fn insert(&self, nonce: Nonce, entry: Unanswered, now: Moment) {
        let mut claims = self.claims.lock();
        if claims.len() >= MOST_CLAIMS {
            claims.retain(|_, claim| claim.until > now);
        }
        if claims.len() < MOST_CLAIMS {
            claims.insert(nonce, entry);
        }
    }
}

impl Proposed<'_> {
    /// Returns the first proposal before `token`.
    pub(crate) fn add(&mut self, token: FencingToken) -> Option<FencingToken> {
        let first = self.first;
        self.first = first.or(Some(token));
        first
    }

    /// The caller learns the outcome, so it does not repeat the claim.
    pub(crate) fn answer(mut self) {
        self.first = None;
    }
}

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        let Some(first) = self.first else { return };
        let until = self.began + self.claim.ttl * 2;
        self.unanswered.insert(self.claim.nonce, Unanswered { first, until }, self.began);
    }
}

const MOST_CLAIMS: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lease_core::Lessee;

    use super::*;

    fn claim() -> Claim {
        let lessee = Lessee::new("a").unwrap();
        Claim::new("job".parse().unwrap(), lessee, Nonce::random(), Duration::from_secs(10))
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn repetition_knows_the_first_proposal_of_a_dropped_call() {
        let (claims, claim) = (UnansweredClaims::default(), claim());
        let mut proposed = claims.begin(&claim, Moment::from_nanos(0));
        assert_eq!(proposed.add(token(5)), None);
        assert_eq!(proposed.add(token(7)), Some(token(5)));
        drop(proposed);

        let repeated = claim.repeated();

        assert_eq!(claims.begin(&repeated, Moment::from_nanos(0)).add(token(9)), Some(token(5)));
        let late = Moment::from_nanos(0) + Duration::from_secs(20);
        assert_eq!(claims.begin(&repeated, late).add(token(11)), None);
    }

    #[test]
    fn answered_call_is_not_stored() {
        let (claims, claim) = (UnansweredClaims::default(), claim());
        let mut proposed = claims.begin(&claim, Moment::from_nanos(0));
        proposed.add(token(5));

        proposed.answer();

        assert!(claims.claims.lock().is_empty());
    }

    #[test]
    fn number_of_stored_claims_is_limited() {
        let claims = UnansweredClaims::default();
        for number in 0..MOST_CLAIMS as u64 + 10 {
            claims.begin(&claim(), Moment::from_nanos(0)).add(token(number + 1));
        }
        assert_eq!(claims.claims.lock().len(), MOST_CLAIMS);

        claims.begin(&claim(), Moment::from_nanos(0) + Duration::from_secs(60)).add(token(1));

        assert_eq!(claims.claims.lock().len(), 1);
    }
}
