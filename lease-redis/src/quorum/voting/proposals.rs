//! The tokens that a client proposes: a hybrid logical clock.

use std::sync::atomic::{AtomicU64, Ordering};

use lease_core::FencingToken;

use crate::error::ServerFault;

/// The last proposal of one client.
///
/// A claim may be repeated with its nonce, and must then propose a larger token: a late withdrawal of the
/// earlier proposal must not affect it. All claims of the client share the clock, so that it need not store
/// the nonces.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    last: AtomicU64,
}

impl Proposals {
    /// A token that is larger than all earlier proposals and than `seen`, and not below `time`.
    ///
    /// A release raises the counters to its token plus 1, so the next proposal is at least its token plus 2.
    pub(crate) fn next(&self, time: u64, seen: u64) -> Result<FencingToken, ServerFault> {
        let following = |last: u64| time.max(last.saturating_add(2)).max(seen.saturating_add(1));
        let token = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            let next = following(last);
            (next < FencingToken::MAX.get()).then_some(next)
        });
        let next = token.map_or(u64::MAX, following);
        FencingToken::new(next).map_err(|_too_large| {
            ServerFault::corrupt("the counters of the key leave no larger token")
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
