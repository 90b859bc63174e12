//! How a lease stands, judged by DynamoDB's time and by what was seen of it.

use std::time::Duration;

use lease_core::{Holder, LeaseKey, Moment};

use crate::config::{Settings, TimeMode};
use crate::item::{Item, Sight};
use crate::parts::Observations;
use crate::time::{Now, ServerTime};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has the key, and nobody is to have it before others.
    Free,
    /// Nobody has the key, but for this long it is kept: for somebody, or by whoever had it.
    Reserved(Option<Duration>),
    Held(Holder),
    /// The holder's time is over; the next claim takes the key.
    Over(Holder),
}

impl Standing {
    /// Judges `item`, which was received `now`. Where it has no ttl of its own, as those of other
    /// programs, it is watched for `else_ttl`.
    pub(crate) fn of(
        key: &LeaseKey,
        item: &Item,
        else_ttl: Option<Duration>,
        settings: &Settings,
        time: &ServerTime,
        observations: &Observations<Sight>,
        now: Moment,
    ) -> Self {
        if item.lessee.is_none() && item.reserved_until.is_none() {
            observations.forget(key.as_str());
            return Self::Free;
        }
        let since = observations.see(key.as_str(), item.sight(), item.ttl, now);
        let watched =
            item.ttl.or(else_ttl).map(|ttl| time.surely(ttl).saturating_sub(now.since(since)));
        let server_now = time.now();

        let Some(lessee) = &item.lessee else {
            // A reservation is a promise about schedules, not about exclusion: whatever the
            // mode, DynamoDB's time is good enough for it, and without a margin.
            let told = server_now.zip(item.reserved_until);
            let left = told.map(|(now, until)| until.since(now.lowest));
            let left = shorter(left, watched);
            return if left == Some(Duration::ZERO) { Self::Free } else { Self::Reserved(left) };
        };
        let told = match settings.time_mode {
            TimeMode::ServerTimeAndObservation => left_by_time(item, settings, server_now),
            TimeMode::ObservationOnly => None,
        };
        let left = shorter(told, watched);
        let holder = Holder::new(lessee.clone(), item.token_or_zero, left);
        if left == Some(Duration::ZERO) { Self::Over(holder) } else { Self::Held(holder) }
    }
}

/// Until when nobody else may take the lease, by DynamoDB's time.
fn left_by_time(item: &Item, settings: &Settings, now: Option<Now>) -> Option<Duration> {
    let free_at = item.expires_at?.plus(settings.margin);
    let left = free_at.since(now?.lowest);
    // The lower line runs slower than our clock: it takes this much longer to get there.
    Some(left.div_f64(1.0 - settings.timing.clock_rate_error))
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
