//! Finds the reason for an expired lease, for the log.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::heartbeat::entry::HeartbeatEntry;

#[derive(Debug)]
pub(crate) struct Observations {
    ttl: Duration,
    late_polls: VecDeque<(Moment, Duration)>,
    store_answered: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpiryReason {
    /// The application has not called `Locker::alive` for this long.
    ApplicationSilent(Duration),
    /// The runtime did not poll the heartbeater for this long when heartbeats were due.
    NotPolled(Duration),
    ExpiredAtStore,
    /// No heartbeat of this lease was confirmed for this long, but heartbeats of other leases were.
    StoreSlow(Duration),
    StoreOutOfReach(Duration),
    NoSlot,
    NotSent,
}

impl Observations {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, late_polls: VecDeque::new(), store_answered: None }
    }

    /// Callers report only delays of more than a 64th of a heartbeat period, so few records fit
    /// into one ttl.
    pub(crate) fn polled_late(&mut self, now: Moment, late: Duration) {
        while self.late_polls.front().is_some_and(|(at, _)| now.since(*at) > self.ttl) {
            self.late_polls.pop_front();
        }
        self.late_polls.push_back((now, late));
    }

    pub(crate) fn store_answered(&mut self, now: Moment) {
        self.store_answered = Some(now);
    }

    pub(crate) fn reason_for_expiry(&self, entry: &HeartbeatEntry, now: Moment) -> ExpiryReason {
        if let Some(silence) = entry.silence() {
            return ExpiryReason::ApplicationSilent(silence);
        }
        let ttl = self.ttl;
        let of_last_ttl = self.late_polls.iter().filter(|(at, _)| now.since(*at) <= ttl);
        let not_polled = of_last_ttl.map(|(_, late)| *late).sum::<Duration>();
        let unconfirmed = entry.unconfirmed.map(|since| now.since(since));
        // Late polls for half of the time are enough, because a blocked runtime cannot read answers either.
        if not_polled * 2 >= unconfirmed.unwrap_or(ttl) {
            return ExpiryReason::NotPolled(not_polled);
        }
        match unconfirmed {
            _ if entry.is_lost_at_store => ExpiryReason::ExpiredAtStore,
            Some(length) if self.store_answered > entry.unconfirmed => {
                ExpiryReason::StoreSlow(length)
            }
            Some(length) => ExpiryReason::StoreOutOfReach(length),
            None if entry.is_waiting => ExpiryReason::NoSlot,
            None => ExpiryReason::NotSent,
        }
    }
}

impl fmt::Display for ExpiryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApplicationSilent(length) => write!(
                f,
                "the application did not call Locker::alive for {} ms",
                length.as_millis()
            ),
            Self::NotPolled(length) => write!(
                f,
                "the runtime did not poll the heartbeater for {} ms: its threads are blocked, or \
                 the process was paused",
                length.as_millis()
            ),
            Self::ExpiredAtStore => f.write_str("the store answered that the ttl has passed"),
            Self::StoreSlow(length) => write!(
                f,
                "the store is slow: it confirmed heartbeats of other leases, but none of this \
                 lease for {} ms",
                length.as_millis()
            ),
            Self::StoreOutOfReach(length) => write!(
                f,
                "the store is out of reach: it confirmed no heartbeat for {} ms",
                length.as_millis()
            ),
            Self::NoSlot => f.write_str(
                "the store is slow: unanswered heartbeats of other leases took all slots",
            ),
            Self::NotSent => f.write_str("no heartbeat was sent in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::BootClock;
    use crate::heartbeat::lease_cell::LeaseCell;
    use crate::store::grant::Claim;
    use crate::store::nonce::Nonce;
    use crate::token::FencingToken;

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(30);
    const START: Moment = Moment::from_nanos(1_000_000_000_000);

    fn entry() -> HeartbeatEntry {
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), TTL);
        let grant = claim.granted(FencingToken::new(1).unwrap());
        let cell = LeaseCell::new(0, grant, Arc::new(BootClock::new()), START, START + TTL);
        HeartbeatEntry::new(Arc::new(cell), START)
    }

    #[test]
    fn late_polls_for_half_of_the_time_are_the_reason() {
        let mut observed = Observations::new(TTL);
        for second in [11, 16] {
            observed.polled_late(START + SECOND * second, SECOND * 5);
        }
        let mut entry = entry();
        entry.unconfirmed = Some(START + SECOND * 10);

        let reason = observed.reason_for_expiry(&entry, START + TTL);

        assert_eq!(reason, ExpiryReason::NotPolled(SECOND * 10));
    }

    #[test]
    fn late_polls_of_an_earlier_ttl_are_no_reason() {
        let mut observed = Observations::new(TTL);
        observed.polled_late(START, TTL);
        let now = START + TTL + SECOND;

        assert_eq!(observed.reason_for_expiry(&entry(), now), ExpiryReason::NotSent);
        observed.polled_late(now, SECOND);
        assert_eq!(observed.late_polls.len(), 1);
    }

    #[test]
    fn store_that_answers_other_heartbeats_is_slow() {
        let mut observed = Observations::new(TTL);
        let mut entry = entry();
        entry.unconfirmed = Some(START + SECOND * 10);
        let now = START + TTL;

        observed.store_answered(START + SECOND * 9);
        let silent = observed.reason_for_expiry(&entry, now);
        observed.store_answered(START + SECOND * 11);
        let slow = observed.reason_for_expiry(&entry, now);

        assert_eq!(silent, ExpiryReason::StoreOutOfReach(SECOND * 20));
        assert_eq!(slow, ExpiryReason::StoreSlow(SECOND * 20));
    }

    #[test]
    fn heartbeat_waiting_for_a_slot_is_the_reason() {
        let mut entry = entry();
        entry.is_waiting = true;

        let reason = Observations::new(TTL).reason_for_expiry(&entry, START + TTL);

        assert_eq!(reason, ExpiryReason::NoSlot);
    }

    #[test]
    fn expiry_reported_by_the_store_is_the_reason() {
        let mut entry = entry();
        entry.unconfirmed = Some(START);
        entry.is_lost_at_store = true;

        let reason = Observations::new(TTL).reason_for_expiry(&entry, START + TTL);

        assert_eq!(reason, ExpiryReason::ExpiredAtStore);
    }
}
