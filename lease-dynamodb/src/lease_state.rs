//! The state of a lease, by DynamoDB's time and by observation.

use std::time::Duration;

use lease_core::store::{Claim, Grant, Moment, Observations, ServerClock, ServerNow};
use lease_core::{Holder, LeaseKey, LossCause};

use crate::items::{Item, Observed};
use crate::settings::{Settings, TimeMode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Free,
    /// The rest of a reservation for one lessee, or for no lessee after a release.
    Reserved(Option<Duration>),
    Held(Holder),
    Expired(Holder),
}

impl LeaseState {
    /// Determines the state from `item`, which was received at `now`. An item of another program
    /// may have no ttl: such an item must be unchanged for `default_ttl`.
    pub(crate) fn of(
        key: &LeaseKey,
        item: &Item,
        default_ttl: Option<Duration>,
        settings: &Settings,
        time: &ServerClock,
        observations: &Observations<Observed>,
        now: Moment,
    ) -> Self {
        if item.lessee.is_none() && item.reserved_until.is_none() {
            observations.forget(key.as_str());
            return Self::Free;
        }
        if let (Some(lessee), Some(session)) = (&item.lessee, &item.parent) {
            // No time ends this lease. The store does not observe the item, since a listing could
            // displace observed sessions.
            let holder = Holder::new(lessee.clone(), None).named_by(item.token_or_zero);
            return Self::Held(holder.with_parent(Some(session.clone())));
        }
        let since = observations.observe(key.as_str(), item.observed(), item.ttl, now);
        let ttl = item.ttl.or(default_ttl);
        let by_observation = ttl.map(|ttl| time.with_skew(ttl).saturating_sub(now.since(since)));
        let server_now = time.now();

        let Some(lessee) = &item.lessee else {
            // Exclusion does not depend on a reservation. So DynamoDB's time suffices in both
            // modes, without a margin.
            let by_time = server_now.zip(item.reserved_until);
            let by_time = by_time.map(|(now, until)| until.since(now.lowest));
            let left = shorter(by_time, by_observation);
            return if left == Some(Duration::ZERO) { Self::Free } else { Self::Reserved(left) };
        };
        let by_time = match settings.time_mode {
            TimeMode::ServerTimeAndObservation => {
                time_left(item, settings.margin, server_now).map(|left| time.until_lowest(left))
            }
            TimeMode::ObservationOnly => None,
        };
        let left = shorter(by_time, by_observation);
        let holder = Holder::new(lessee.clone(), left).named_by(item.token_or_zero);
        if left == Some(Duration::ZERO) { Self::Expired(holder) } else { Self::Held(holder) }
    }
}

/// Amazon's lock client does not write `expires_at`. An item that the client took has the value of
/// an earlier grant.
fn time_left(item: &Item, margin: Duration, now: Option<ServerNow>) -> Option<Duration> {
    if item.foreign.as_ref().is_some_and(|foreign| foreign.is_of_lock_client) {
        return None;
    }
    Some(item.expires_at?.plus(margin).since(now?.lowest))
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Returns `Expired` unless the item shows another cause.
pub(crate) fn why_lost(grant: &Grant, item: Option<&Item>) -> LossCause {
    let Some(item) = item else {
        return LossCause::Expired;
    };
    if item.has_grant(grant) {
        if item.evicted || item.lessee.as_ref() != Some(&grant.lessee) {
            LossCause::Revoked
        } else {
            LossCause::Expired
        }
    } else if item.token > Some(grant.token) {
        LossCause::Superseded
    } else {
        LossCause::Expired
    }
}

pub(crate) fn last_holder(claim: &Claim, item: &Item, left: Option<Duration>) -> Holder {
    let lessee = item
        .lessee
        .as_ref()
        .or(item.offered_to.as_ref())
        .or(item.former.as_ref())
        .unwrap_or(&claim.lessee);
    Holder::new(lessee.clone(), left).with_token(item.token_or_zero)
}
