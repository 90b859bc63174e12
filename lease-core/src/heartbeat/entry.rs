//! The leases that a heartbeater keeps alive, side by side in memory.
//!
//! All of them are looked at in every period, in an order that is nobody's: what is looked at lies
//! together, and is found by its place, without a search.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tracing::{debug, warn};

use crate::clock::Moment;
use crate::error::StoreError;
use crate::grant::Beat;
use crate::hold::Hold;
use crate::options::LeaseOptions;
use crate::settings::Settings;

/// A lease that is kept alive.
pub(crate) struct Kept {
    pub(crate) hold: Arc<Hold>,
    pub(crate) id: u64,
    /// The number of the last heartbeat that was sent.
    pub(crate) beat: Beat,
    /// When it was sent, while it is unanswered.
    pub(crate) sent: Option<Moment>,
    /// When the next one is to be sent.
    pub(crate) next: Moment,
    /// When the first heartbeat was sent since the last one that succeeded.
    pub(crate) unconfirmed: Option<Moment>,
    /// Of the last heartbeat that failed since then.
    pub(crate) error: Option<StoreError>,
    /// The store answered that the lease is lost.
    pub(crate) is_lost_at_store: bool,
    pub(crate) failures: u32,
    /// For a slot, with its heartbeat.
    pub(crate) is_waiting: bool,
    risk: Risk,
    is_winding_down: bool,
}

/// Whether the lease may be lost soon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Risk {
    None,
    /// The last heartbeat failed or is late.
    Heartbeat,
    /// The application has been silent for this long: no heartbeat is sent.
    HeldBack(Duration),
}

impl Kept {
    pub(crate) fn new(hold: Arc<Hold>, next: Moment) -> Self {
        Self {
            id: hold.id,
            hold,
            beat: Beat::GRANTED,
            sent: None,
            next,
            unconfirmed: None,
            error: None,
            is_lost_at_store: false,
            failures: 0,
            is_waiting: false,
            risk: Risk::None,
            is_winding_down: false,
        }
    }

    /// When to look at it again, whatever happens to it next.
    pub(crate) fn look_again(&self, now: Moment, options: &LeaseOptions) -> Moment {
        let deadline = self.hold.deadline().unwrap_or(now);
        let moment = match self.sent {
            Some(sent) => sent + options.request_timeout(),
            // Its turn comes with a slot.
            None if self.is_waiting => deadline,
            None => self.next,
        };
        if self.is_winding_down {
            return moment.min(deadline);
        }
        moment.min(deadline - options.grace())
    }

    /// Cancels the work under this lease, whose deadline is near.
    pub(crate) fn wind_down(&mut self) {
        if !self.is_winding_down {
            self.is_winding_down = true;
            self.hold.wind_down();
        }
    }

    pub(crate) fn put_at_risk(&mut self, settings: &Settings, now: Moment, why: &str) {
        let margin = self.hold.deadline().map_or(Duration::ZERO, |at| at.since(now));
        settings.metrics.heartbeat_failed(&self.hold.grant.key, margin);
        if self.risk == Risk::None {
            self.risk = Risk::Heartbeat;
        }
        self.hold.put_at_risk();
        let grant = &self.hold.grant;
        debug!(
            key = %grant.key, lessee = %grant.lessee, token = %grant.token, ?margin,
            "lease at risk: {why}"
        );
    }

    /// Sends no heartbeat, since the application has not said for `silence` that it is alive. Looks
    /// again soon: it may say so in time.
    pub(crate) fn hold_back(&mut self, settings: &Settings, now: Moment, silence: Duration) {
        self.next = now + settings.options.heartbeat_period() / 8;
        self.is_waiting = false;
        let risk = std::mem::replace(&mut self.risk, Risk::HeldBack(silence));
        if !matches!(risk, Risk::HeldBack(_)) {
            let grant = &self.hold.grant;
            warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, ?silence,
                "heartbeats stopped: the application does not call Locker::alive"
            );
            self.put_at_risk(settings, now, "application is silent");
        }
    }

    /// For how long the application has been silent, if heartbeats are held back for that.
    pub(crate) fn silence(&self) -> Option<Duration> {
        match self.risk {
            Risk::HeldBack(silence) => Some(silence),
            Risk::None | Risk::Heartbeat => None,
        }
    }

    /// A heartbeat has succeeded.
    pub(crate) fn take_out_of_risk(&mut self) {
        self.failures = 0;
        self.unconfirmed = None;
        self.error = None;
        if std::mem::replace(&mut self.risk, Risk::None) != Risk::None {
            self.hold.take_out_of_risk();
        }
    }
}

/// Leases, each in a place of its own. A place is used again once its lease has gone.
#[derive(Default)]
pub(crate) struct Leases {
    places: Slab<Kept>,
    by_id: HashMap<u64, usize>,
}

impl Leases {
    pub(crate) fn insert(&mut self, kept: Kept) -> usize {
        let id = kept.id;
        let place = self.places.insert(kept);
        self.by_id.insert(id, place);
        place
    }

    /// What is at `place`, whoever it is.
    pub(crate) fn at(&mut self, place: usize) -> Option<&mut Kept> {
        self.places.get_mut(place)
    }

    /// The deadlines of the leases at `places`, but of those that have ended.
    ///
    /// They are all over the memory, and to wait for it takes longest here. Nothing else is done with
    /// one before the next is asked for: so the processor waits for many at the same time, and
    /// whoever asks has them all at hand.
    pub(crate) fn deadlines(&self, places: impl Iterator<Item = usize>) -> Vec<Option<Moment>> {
        let deadline = |place| {
            let hold = &self.places.get(place)?.hold;
            // Fetched for the command that is written next.
            black_box(hold.grant.key.as_str().as_bytes().first().copied());
            hold.deadline()
        };
        places.map(deadline).collect()
    }

    /// The lease `id`, if it is still at `place`: another one may have come there since.
    pub(crate) fn still_at(&mut self, place: usize, id: u64) -> Option<&mut Kept> {
        self.at(place).filter(|kept| kept.id == id)
    }

    pub(crate) fn place_of(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn remove(&mut self, place: usize) -> Option<Kept> {
        let kept = self.places.try_remove(place)?;
        self.by_id.remove(&kept.id);
        Some(kept)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.places.iter().map(|(_, kept)| kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{BootClock, Clock};
    use crate::grant::Claim;
    use crate::nonce::Nonce;
    use crate::token::FencingToken;

    fn kept(id: u64) -> Kept {
        let ttl = Duration::from_secs(60);
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), ttl);
        let (clock, grant) = (BootClock::new(), claim.granted(FencingToken::new(1).unwrap()));
        let now = clock.now();
        Kept::new(Arc::new(Hold::new(id, grant, Arc::new(clock), now, now + ttl)), now)
    }

    #[test]
    fn a_place_is_used_again_and_its_former_lease_is_not_there() {
        let mut leases = Leases::default();
        let first = leases.insert(kept(1));
        let second = leases.insert(kept(2));
        assert_ne!(first, second);

        assert_eq!(leases.remove(first).map(|kept| kept.id), Some(1));
        assert_eq!(leases.insert(kept(3)), first);

        assert!(leases.still_at(first, 1).is_none());
        assert!(leases.still_at(first, 3).is_some());
        assert_eq!((leases.place_of(1), leases.place_of(3)), (None, Some(first)));
        assert_eq!(leases.iter().count(), 2);
        assert!(leases.at(7).is_none() && leases.remove(7).is_none());
    }
}
