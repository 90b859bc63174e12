//! The heartbeater's records of the leases that it extends.
//!
//! The heartbeater looks at every lease in each period. So one vector contains all entries, and an
//! index selects an entry without a search.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tracing::{debug, warn};

use crate::clock::Moment;
use crate::error::StoreError;
use crate::heartbeat::lease_cell::LeaseCell;
use crate::metrics::open::OpenRisk;
use crate::options::LeaseOptions;
use crate::settings::Settings;
use crate::store::grant::Beat;

pub(crate) struct HeartbeatEntry {
    pub(crate) cell: Arc<LeaseCell>,
    pub(crate) id: u64,
    pub(crate) beat: Beat,
    /// When the last heartbeat was sent; `None` after its answer or its timeout.
    pub(crate) sent: Option<Moment>,
    pub(crate) next: Moment,
    /// When the first heartbeat after the last successful heartbeat was sent.
    pub(crate) unconfirmed: Option<Moment>,
    pub(crate) error: Option<StoreError>,
    pub(crate) is_lost_at_store: bool,
    pub(crate) failures: u32,
    pub(crate) is_waiting: bool,
    risk: Risk,
    /// Counts the lease as at risk, if the locker has metrics.
    open_risk: Option<Box<OpenRisk>>,
    is_winding_down: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Risk {
    None,
    Heartbeat,
    /// The watchdog stopped the heartbeats, because the application had been silent for this long.
    Watchdog(Duration),
}

impl HeartbeatEntry {
    pub(crate) fn new(cell: Arc<LeaseCell>, next: Moment) -> Self {
        Self {
            id: cell.id,
            cell,
            beat: Beat::GRANTED,
            sent: None,
            next,
            unconfirmed: None,
            error: None,
            is_lost_at_store: false,
            failures: 0,
            is_waiting: false,
            risk: Risk::None,
            open_risk: None,
            is_winding_down: false,
        }
    }

    /// When the heartbeater must look at this lease again, if nothing happens before.
    pub(crate) fn next_look(&self, now: Moment, options: &LeaseOptions) -> Moment {
        let deadline = self.cell.deadline().unwrap_or(now);
        let moment = match self.sent {
            Some(sent) => sent + options.request_timeout(),
            None if self.is_waiting => deadline,
            None => self.next,
        };
        if self.is_winding_down {
            return moment.min(deadline);
        }
        moment.min(deadline - options.grace())
    }

    pub(crate) fn wind_down(&mut self) {
        if !self.is_winding_down {
            self.is_winding_down = true;
            self.cell.wind_down();
        }
    }

    pub(crate) fn put_at_risk(&mut self, settings: &Settings, now: Moment, why: &str) {
        let margin = self.cell.deadline().map_or(Duration::ZERO, |at| at.since(now));
        settings.metrics.heartbeat_failed(&self.cell.grant.key, margin);
        if self.risk == Risk::None {
            self.risk = Risk::Heartbeat;
        }
        if settings.has_metrics && self.open_risk.is_none() {
            let key = self.cell.grant.key.clone();
            self.open_risk = Some(Box::new(OpenRisk::new(Arc::clone(&settings.metrics), key)));
        }
        self.cell.put_at_risk();
        let grant = &self.cell.grant;
        debug!(
            key = %grant.key, lessee = %grant.lessee, token = %grant.token, ?margin,
            "lease at risk: {why}"
        );
    }

    /// Stops the heartbeats, because the application has not called `Locker::alive` for `silence`.
    /// The next look comes soon, because the application may still call `Locker::alive` in time.
    pub(crate) fn hold_back(&mut self, settings: &Settings, now: Moment, silence: Duration) {
        self.next = now + settings.options.heartbeat_period() / 8;
        self.is_waiting = false;
        let risk = std::mem::replace(&mut self.risk, Risk::Watchdog(silence));
        if !matches!(risk, Risk::Watchdog(_)) {
            let grant = &self.cell.grant;
            warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, ?silence,
                "heartbeats stopped: the application does not call Locker::alive"
            );
            self.put_at_risk(settings, now, "application is silent");
        }
    }

    pub(crate) fn silence(&self) -> Option<Duration> {
        match self.risk {
            Risk::Watchdog(silence) => Some(silence),
            Risk::None | Risk::Heartbeat => None,
        }
    }

    pub(crate) fn take_out_of_risk(&mut self) {
        self.failures = 0;
        self.unconfirmed = None;
        self.error = None;
        if std::mem::replace(&mut self.risk, Risk::None) != Risk::None {
            self.open_risk = None;
            self.cell.take_out_of_risk();
        }
    }
}

#[derive(Default)]
pub(crate) struct HeartbeatEntries {
    entries: Slab<HeartbeatEntry>,
    by_id: HashMap<u64, usize>,
}

impl HeartbeatEntries {
    pub(crate) fn insert(&mut self, entry: HeartbeatEntry) -> usize {
        let id = entry.id;
        let index = self.entries.insert(entry);
        self.by_id.insert(id, index);
        index
    }

    /// The entry may belong to another lease than before.
    pub(crate) fn at(&mut self, index: usize) -> Option<&mut HeartbeatEntry> {
        self.entries.get_mut(index)
    }

    /// The loop only reads each cell, so the processor waits for the memory of many cells at the
    /// same time. Without this prefetch and that of [`TimerQueue`](super::timer_queue::TimerQueue),
    /// the bench `held` of lease-memory takes 15 % more processor time.
    pub(crate) fn deadlines(&self, indices: impl Iterator<Item = usize>) -> Vec<Option<Moment>> {
        let deadline = |index| {
            let cell = &self.entries.get(index)?.cell;
            // The next heartbeat contains the key.
            black_box(cell.grant.key.as_str().as_bytes().first().copied());
            cell.deadline()
        };
        indices.map(deadline).collect()
    }

    /// The entry of lease `id`; `None` if another lease has this index now.
    pub(crate) fn still_at(&mut self, index: usize, id: u64) -> Option<&mut HeartbeatEntry> {
        self.at(index).filter(|entry| entry.id == id)
    }

    pub(crate) fn index_of(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<HeartbeatEntry> {
        let entry = self.entries.try_remove(index)?;
        self.by_id.remove(&entry.id);
        Some(entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &HeartbeatEntry> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{BootClock, Clock};
    use crate::store::grant::Claim;
    use crate::store::nonce::Nonce;
    use crate::token::FencingToken;

    fn entry(id: u64) -> HeartbeatEntry {
        let ttl = Duration::from_secs(60);
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), ttl);
        let (clock, grant) = (BootClock::new(), claim.granted(FencingToken::new(1).unwrap()));
        let now = clock.now();
        HeartbeatEntry::new(
            Arc::new(LeaseCell::new(id, grant, Arc::new(clock), now, now + ttl)),
            now,
        )
    }

    #[test]
    fn reused_index_does_not_return_former_lease() {
        let mut entries = HeartbeatEntries::default();
        let first = entries.insert(entry(1));
        let second = entries.insert(entry(2));
        assert_ne!(first, second);

        assert_eq!(entries.remove(first).map(|entry| entry.id), Some(1));
        assert_eq!(entries.insert(entry(3)), first);

        assert!(entries.still_at(first, 1).is_none());
        assert!(entries.still_at(first, 3).is_some());
        assert_eq!((entries.index_of(1), entries.index_of(3)), (None, Some(first)));
        assert_eq!(entries.iter().count(), 2);
        assert!(entries.at(7).is_none() && entries.remove(7).is_none());
    }
}
