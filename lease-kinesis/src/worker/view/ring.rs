//! Finds the sessions that have ended, and removes their counters.
//!
//! The sessions form a ring. Each worker watches its successor and one more session of the ring. So each
//! session is watched by one worker at least, and the random choice covers for a worker that reads slowly.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::store::{Ended, LeaseRecord, Parent, SessionState, Sessions, within};
use lease_core::{Attempt, Change, Holder, LeaseKey, Lessee, StoreError, StoreErrorKind, Written};
use tracing::{debug, info};

use super::roster::{SessionId, any_below};
use super::{View, sessions};
use crate::log_throttle::LogThrottles;
use crate::table::snapshot::log_unreadable;
use crate::worker::parts::WorkerParts;

/// The state of a session that was watched.
enum Watched {
    /// The session expires after this time, if the store reports the time.
    Held(Option<Duration>),
    Ended,
    /// A request failed, so the next tick asks again.
    Unknown,
}

impl View {
    /// Reads the counters, the successor, and one session at random.
    pub(super) async fn watch_ring(
        &mut self,
        worker: &WorkerParts,
        own: &SessionId,
        reading: &BTreeSet<LeaseKey>,
        unreadable: &mut LogThrottles,
    ) -> Result<(), StoreError> {
        let settings = &worker.settings;
        let limit = settings.options.request_timeout();
        let sessions = sessions(&*settings.table)?;
        let ring = self.roster.ring(own);
        let watched = self.watched(&ring, &worker.me.name);
        let parents: Vec<_> =
            watched.iter().filter_map(|id| self.roster.parent(id).cloned()).collect();
        let changes = settings.application.changes();
        let keys: Vec<_> =
            [changes].into_iter().chain(parents.iter().map(|parent| parent.key.clone())).collect();
        let read = async { Ok(sessions.read_all(&keys).await) };
        let mut records = within(limit, read).await?.into_iter();
        let counters = match records.next() {
            // Without counters, the workers watch all sessions that they know.
            Some(Err(cause)) if cause.kind() == StoreErrorKind::Corrupt => {
                log_unreadable(unreadable, keys.first(), &cause, "delete it, or reads increase");
                None
            }
            counters => counters.transpose()?.flatten(),
        };
        let records: Vec<_> = records.collect();
        self.rows_read += keys.len();
        if !self.roster.update(counters.as_ref(), &settings.application, own) {
            self.must_count = true;
        }
        let uncounted = self.uncounted_rows(&watched, &records);
        let looks = parents
            .iter()
            .zip(records)
            .map(|(parent, record)| look(sessions, parent, record, limit));
        let states = join_all(looks).await;
        let successor_ended = matches!(states.first(), Some(Watched::Ended));
        self.next_expiry = None;
        if let Some(Watched::Held(left)) = states.first() {
            self.next_expiry = *left;
        }
        for (id, state) in watched.iter().zip(states) {
            self.take_over(id, &state, reading);
        }
        for (id, record) in uncounted {
            let news = self.roster.read(&id, Some(&record), &settings.application);
            self.take_news(news, reading);
        }
        if successor_ended {
            self.walk(sessions, ring.into_iter().skip(1).collect(), limit, reading).await;
        }
        Ok(())
    }

    /// The held rows of sessions without a counter. Their notices are read at each tick, since no counter moves. A
    /// read of several keys may return an older row than an earlier read did. This is no gap: the next read is newer.
    fn uncounted_rows(
        &self,
        watched: &[SessionId],
        records: &[Result<Option<LeaseRecord>, StoreError>],
    ) -> Vec<(SessionId, LeaseRecord)> {
        let rows = watched.iter().zip(records).filter(|(id, _)| self.roster.is_uncounted(id));
        let held = rows.filter_map(|(id, record)| {
            let record = record.as_ref().ok()?.as_ref().filter(|record| record.holder.is_some())?;
            let is_current = self.roster.parent(id)?.token == record.token?;
            let is_usable = is_current && !self.roster.is_older(id, record);
            is_usable.then(|| (id.clone(), record.clone()))
        });
        held.collect()
    }

    /// The successor comes first. A session without a counter is watched by all that know it: its predecessor
    /// may not know it.
    fn watched(&self, ring: &[SessionId], name: &Lessee) -> Vec<SessionId> {
        let others = ring.len().saturating_sub(1);
        let any = any_below(others, name, self.ticks).and_then(|place| ring.get(place + 1));
        let uncounted = ring.iter().skip(1).filter(|id| self.roster.is_uncounted(id));
        let uncounted = uncounted.filter(|id| Some(*id) != any);
        ring.first().into_iter().chain(any).chain(uncounted).cloned().collect()
    }

    /// Many workers may crash at once. So the worker continues along the ring until a session lives.
    async fn walk(
        &mut self,
        sessions: &dyn Sessions,
        ring: Vec<SessionId>,
        limit: Duration,
        reading: &BTreeSet<LeaseKey>,
    ) {
        for some in ring.chunks(AT_ONCE) {
            let parents: Vec<_> =
                some.iter().filter_map(|id| self.roster.parent(id).cloned()).collect();
            let keys: Vec<_> = parents.iter().map(|parent| parent.key.clone()).collect();
            self.rows_read += keys.len();
            let read = async { Ok(sessions.read_all(&keys).await) };
            let Ok(records) = within(limit, read).await else { return };
            let looks = parents.iter().zip(records);
            let looks = looks.map(|(parent, record)| look(sessions, parent, record, limit));
            let states = join_all(looks).await;
            let next = states.iter().find(|state| !matches!(state, Watched::Ended));
            // This session becomes the successor, and may be over before the next tick, too.
            if let Some(Watched::Held(left)) = next {
                self.next_expiry = *left;
            }
            let all_ended = next.is_none();
            for (id, state) in some.iter().zip(states) {
                self.take_over(id, &state, reading);
            }
            if !all_ended {
                return;
            }
        }
    }

    fn take_over(&mut self, id: &SessionId, state: &Watched, reading: &BTreeSet<LeaseKey>) {
        if matches!(state, Watched::Ended) {
            if !self.roster.is_known_to_have_ended(id) {
                info!(session = %id, "session of another worker has ended");
            }
            let news = self.roster.found_ended(id);
            self.take_news(news, reading);
        }
    }

    /// Removes the counters of ended sessions, so that the other workers learn of the ends. A request that fails
    /// is repeated at the next tick.
    pub(super) async fn remove_ended(&mut self, worker: &WorkerParts) {
        let change = self
            .roster
            .to_remove()
            .fold(Change::new(), |change, id| change.remove(id.to_string()).remove(id.leaving()));
        if change.removed().next().is_none() {
            return;
        }
        match change_counters(worker, &change).await {
            Ok(Written::Applied) => debug!("counters of ended sessions removed"),
            // Another worker removes counters at this moment, or did so a moment ago.
            Ok(_) => (),
            Err(cause) => {
                let error = &cause as &dyn std::error::Error;
                debug!(error, "counters of ended sessions not removed, retrying");
            }
        }
    }
}

/// Changes the row `changes` under a lease. Returns [`Written::Unexpected`] if another worker has the lease.
pub(super) async fn change_counters(
    worker: &WorkerParts,
    change: &Change,
) -> Result<Written, StoreError> {
    let key = worker.settings.application.changes();
    let Attempt::Obtained(lease) = worker.locker.obtain(&key).await? else {
        return Ok(Written::Unexpected);
    };
    let written = lease.update(&*worker.settings.table, change).await;
    lease.release().await?;
    written
}

/// Only a written end, or a larger token, proves the end. An absent row and a passed expiry do not.
async fn look(
    sessions: &dyn Sessions,
    session: &Parent,
    record: Result<Option<LeaseRecord>, StoreError>,
    limit: Duration,
) -> Watched {
    let record = match record {
        // The session may be over, and no worker can read its row.
        Err(cause) if cause.kind() == StoreErrorKind::Corrupt => None,
        Err(_) => return Watched::Unknown,
        Ok(record) => record,
    };
    if let Some(record) = &record {
        if Ended::shown_by(record, session).is_some() {
            return Watched::Ended;
        }
        let is_over = |holder: &Holder| holder.expires_in == Some(Duration::ZERO);
        if let Some(holder) = record.holder.as_ref().filter(|holder| !is_over(holder)) {
            return Watched::Held(holder.expires_in);
        }
    }
    match within(limit, sessions.end_session(session)).await {
        Ok(SessionState::Ended(_)) => Watched::Ended,
        Ok(SessionState::Held(holder)) => Watched::Held(holder.expires_in),
        Err(cause) => {
            let (key, error) = (&session.key, &cause as &dyn std::error::Error);
            debug!(%key, error, "session not ended");
            Watched::Unknown
        }
    }
}

const AT_ONCE: usize = 16;
