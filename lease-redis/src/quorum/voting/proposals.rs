//! The tokens that a client proposes: a hybrid logical clock.

use std::sync::atomic::{AtomicU64, Ordering};

use lease_core::FencingToken;

use crate::error::ServerFault;

/// A repeated claim must propose a larger token, so that a late withdrawal of the earlier proposal does not
/// affect it. All claims of a client share the clock, so the client need not store the nonces.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    last: AtomicU64,
}

impl Proposals {
    /// The token is larger than all earlier proposals and than `seen`, and not below `time`. A release raises
    /// the counters to its token plus 1, so the next proposal is at least that token plus 2.
    pub(crate) fn next(&self, time: u64, seen: u64) -> Result<FencingToken, ServerFault> {
        let following = |last: u64| time.max(last.saturating_add(2)).max(seen.saturating_add(1));
        let token = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            let next = following(last);
            (next < FencingToken::MAX.get()).then_some(next)
        });
        let next = token.map_or(u64::MAX, following);
        FencingToken::new(next).map_err(|_too_large| {
            ServerFault::corrupt("no token is larger than the counter of the key")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_follow_the_time_and_grow() {
        let proposals = Proposals::default();
        let next = |time, seen| proposals.next(time, seen).unwrap().get();

        assert_eq!(next(1_000, 0), 1_000);
        assert_eq!(next(1_000, 0), 1_002);
        assert_eq!(next(900, 2_000), 2_001);
        assert_eq!(next(900, 0), 2_003);
        assert_eq!(next(5_000, 0), 5_000);
    }

    #[test]
    fn largest_counter_leaves_the_other_keys_usable() {
        let proposals = Proposals::default();

        assert!(proposals.next(1_000, FencingToken::MAX.get()).is_err());
        assert_eq!(proposals.next(1_000, 0).unwrap().get(), 1_000);
    }
}
