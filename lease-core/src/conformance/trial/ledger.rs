//! The record of a trial, and the check for violations. A *tenure* is a grant as its holder saw it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::simulation::WorldTime;
use crate::heartbeat::ending::Ending;
use crate::heartbeat::lease_cell::LeaseCell;
use crate::key::{LeaseKey, Lessee};
use crate::store::grant::Grant;
use crate::store::nonce::Nonce;
use crate::token::FencingToken;

/// One process's handle to the record of a trial. All times in the record are simulated times.
#[derive(Clone)]
pub struct Ledger {
    time: WorldTime,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Default)]
struct Pages {
    events: Vec<Event>,
    grants: HashMap<LeaseKey, Vec<Granted>>,
    writes: usize,
    late_writes: Vec<LateWrite>,
    tenures: Vec<Tenure>,
    others: Vec<Violation>,
}

/// An event of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The simulated time since the start of the trial.
    pub at: Duration,
    /// The event as a sentence that names the lessee.
    pub what: String,
}

/// A broken promise: when, for which lessee, and how.
pub type Violation = Event;

#[derive(Debug, Clone)]
pub(super) struct Tenure {
    pub(super) grant: Grant,
    pub(super) obtained_at: Duration,
    /// When the lease will stop reporting that it is held, if no heartbeat succeeds.
    pub(super) claims_until: Duration,
    pub(super) ended: Option<(Duration, Ending)>,
    pub(super) notified: Option<Duration>,
    pub(super) ran_after: Option<Duration>,
    pub(super) killed: bool,
}

/// The time within which a process must notice a passed deadline. Timers stop during a suspension.
/// After the wake-up, a lease reads the clock within a heartbeat period, and at each query or poll
/// of the application.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notices {
    pub(super) woken_at: Duration,
    pub(super) within: Duration,
}

/// A late duplicate may be granted again with the same nonce and another token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Granted {
    at: Duration,
    nonce: Nonce,
    token: FencingToken,
}

struct LateWrite {
    at: Duration,
    grant: Grant,
    current: Granted,
}

/// Counts of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Leases that were obtained.
    pub tenures: usize,
    /// Take-overs: grants of a key to another lessee, without a release by the former holder.
    pub takeovers: usize,
    /// Take-overs in which the former holder's process ran between its deadline and the next grant.
    pub notified_first: usize,
    /// Writes that the store applied under a grant.
    pub writes: usize,
}

impl Ledger {
    pub(super) fn new(time: WorldTime) -> Self {
        Self { time, pages: Arc::default() }
    }

    pub(super) fn kept_by(&self, time: WorldTime) -> Self {
        Self { time, pages: Arc::clone(&self.pages) }
    }

    /// The simulated time since the start of the trial.
    pub fn now(&self) -> Duration {
        self.time.now()
    }

    /// Records an event for the trace.
    pub fn note(&self, what: impl Into<String>) {
        self.note_at(self.now(), what);
    }

    pub(super) fn note_at(&self, at: Duration, what: impl Into<String>) {
        self.pages().events.push(Event { at, what: what.into() });
    }

    /// Records that a store has made `grant`. Ignores a repeated answer.
    pub fn granted(&self, grant: &Grant) {
        let granted = Granted { at: self.now(), nonce: grant.nonce, token: grant.token };
        let mut pages = self.pages();
        if !pages.add(&grant.key, granted) {
            return;
        }
        let what = format!("{} granted to {} under token {}", grant.key, grant.lessee, grant.token);
        pages.events.push(Event { at: granted.at, what });
    }

    /// Records that a store has applied a write under `grant`.
    pub fn written(&self, grant: &Grant) {
        let at = self.now();
        let mut pages = self.pages();
        pages.writes += 1;
        let last = pages.grants.get(&grant.key).and_then(|grants| grants.last()).copied();
        if let Some(current) = last
            && !current.is_of(grant)
        {
            pages.late_writes.push(LateWrite { at, grant: grant.clone(), current });
        }
    }

    pub(super) fn begin(&self, grant: &Grant) -> usize {
        let now = self.now();
        let mut pages = self.pages();
        let what = format!("{} holds {} under token {}", grant.lessee, grant.key, grant.token);
        pages.events.push(Event { at: now, what });
        pages.tenures.push(Tenure {
            grant: grant.clone(),
            obtained_at: now,
            claims_until: now,
            ended: None,
            notified: None,
            ran_after: None,
            killed: false,
        });
        pages.tenures.len() - 1
    }

    pub(super) fn notified(&self, tenure: usize) {
        let now = self.now();
        let mut pages = self.pages();
        if let Some(tenure) = pages.tenures.get_mut(tenure) {
            tenure.notified = Some(now);
        }
    }

    /// Does not change the lease, because the trial tests whether the process itself notices the expiry.
    pub(super) fn look_at(&self, number: usize, cell: &LeaseCell, notices: Notices) -> bool {
        let now = self.now();
        let mut pages = self.pages();
        let Some(tenure) = pages.tenures.get_mut(number) else { return false };
        let left = cell.clock().timer_for(cell.remaining());
        if left.is_zero() {
            let since = tenure.claims_until.max(notices.woken_at);
            if now > since + notices.within {
                tenure.ran_after.get_or_insert(now);
            }
        } else {
            tenure.claims_until = tenure.claims_until.max(now + left);
        }
        let Some(ending) = cell.noticed_ending() else { return true };
        tenure.ended = Some((now, ending));
        let grant = &tenure.grant;
        let what = format!(
            "{} no longer holds {} under token {}: {ending:?}",
            grant.lessee, grant.key, grant.token
        );
        pages.events.push(Event { at: now, what });
        false
    }

    pub(super) fn killed(&self, tenure: usize) {
        if let Some(tenure) = self.pages().tenures.get_mut(tenure) {
            tenure.killed = true;
        }
    }

    /// Records a violation that a model or a job has found.
    pub fn violated(&self, what: impl Into<String>) {
        self.violated_at(self.now(), what);
    }

    pub(super) fn violated_at(&self, at: Duration, what: impl Into<String>) {
        self.pages().others.push(Violation { at, what: what.into() });
    }

    pub(super) fn figures(&self) -> Figures {
        let pages = self.pages();
        let mut figures =
            Figures { tenures: pages.tenures.len(), writes: pages.writes, ..Figures::default() };
        for tenure in &pages.tenures {
            if let Some(taken) = pages.taken_over(tenure) {
                figures.takeovers += 1;
                let ran_before = tenure.ran_after.is_some_and(|ran| ran <= taken);
                figures.notified_first += usize::from(ran_before && !tenure.killed);
            }
        }
        figures
    }

    pub(super) fn obtained_since(&self, since: Duration) -> Vec<(Duration, Lessee)> {
        let pages = self.pages();
        let later = pages.tenures.iter().filter(|tenure| tenure.obtained_at >= since);
        later.map(|tenure| (tenure.obtained_at, tenure.grant.lessee.clone())).collect()
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let pages = self.pages();
        let mut violations: Vec<_> =
            pages.tenures.iter().filter_map(|tenure| pages.held_too_long(tenure)).collect();
        violations
            .extend(pages.tenures.iter().filter_map(|tenure| pages.notified_too_late(tenure)));
        violations.extend(pages.out_of_order());
        violations.extend(pages.late_writes.iter().map(|write| pages.written_too_late(write)));
        violations.extend(pages.others.iter().cloned());
        violations.sort_by_key(|violation| violation.at);
        violations
    }

    pub(super) fn trace(&self) -> Vec<Event> {
        let mut events = self.pages().events.clone();
        events.sort_by_key(|event| event.at);
        events
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock()
    }
}

impl Pages {
    /// In a quorum, a claim may be granted again under its old token after another claim had votes.
    /// This counts as a new grant.
    fn add(&mut self, key: &LeaseKey, granted: Granted) -> bool {
        let grants = self.grants.entry(key.clone()).or_default();
        let mut of_claim = grants.iter().rev().take_while(|earlier| earlier.nonce == granted.nonce);
        let is_new = !of_claim.any(|earlier| earlier.token == granted.token);
        if is_new {
            grants.push(granted);
        }
        is_new
    }

    fn successor(&self, tenure: &Tenure) -> Option<Granted> {
        let grants = self.grants.get(&tenure.grant.key)?;
        let is_own = |granted: &Granted| granted.is_of(&tenure.grant);
        // Finds the latest grant that can have reached the holder: a tenure begins after its grant.
        let was_received = |granted: &Granted| is_own(granted) && granted.at <= tenure.obtained_at;
        let own =
            grants.iter().rposition(was_received).or_else(|| grants.iter().position(is_own))?;
        let mut later = grants.iter().skip(own + 1);
        later.find(|granted| granted.nonce != tenure.grant.nonce).copied()
    }

    fn taken_over(&self, tenure: &Tenure) -> Option<Duration> {
        let taken = self.successor(tenure)?.at;
        let released = matches!(tenure.ended, Some((at, Ending::Released)) if at <= taken);
        (!released).then_some(taken)
    }

    fn held_too_long(&self, tenure: &Tenure) -> Option<Violation> {
        let successor = self.successor(tenure)?;
        let held_until = match tenure.ended {
            Some((ended, _)) => ended.min(tenure.claims_until),
            None => tenure.claims_until,
        };
        (held_until > successor.at).then(|| Violation {
            at: successor.at,
            what: format!(
                "two holders: {} still held {} under token {} (until {held_until:?}) when it was \
                 granted to {}",
                tenure.grant.lessee,
                tenure.grant.key,
                tenure.grant.token,
                self.name_of(successor),
            ),
        })
    }

    fn notified_too_late(&self, tenure: &Tenure) -> Option<Violation> {
        let taken = self.taken_over(tenure)?;
        let ran_in_time = tenure.ran_after.is_some_and(|ran| ran <= taken);
        let notified_in_time = tenure.notified.is_some_and(|notified| notified <= taken);
        (ran_in_time && !notified_in_time && !tenure.killed).then(|| Violation {
            at: taken,
            what: format!(
                "loss reported too late: {} lost {} (token {}) at {:?}, ran before the next \
                 grant, and was notified at {:?}",
                tenure.grant.lessee,
                tenure.grant.key,
                tenure.grant.token,
                tenure.claims_until,
                tenure.notified,
            ),
        })
    }

    fn out_of_order(&self) -> Vec<Violation> {
        let mut last: HashMap<&LeaseKey, &Tenure> = HashMap::new();
        let mut tenures: Vec<_> = self.tenures.iter().collect();
        tenures.sort_by_key(|tenure| tenure.obtained_at);
        let mut violations = Vec::new();
        for tenure in tenures {
            let before = last.insert(&tenure.grant.key, tenure);
            let Some(before) = before else { continue };
            if tenure.grant.token <= before.grant.token {
                violations.push(Violation {
                    at: tenure.obtained_at,
                    what: format!(
                        "tokens out of order: {} obtained {} under token {} after {} had it under \
                         token {}",
                        tenure.grant.lessee,
                        tenure.grant.key,
                        tenure.grant.token,
                        before.grant.lessee,
                        before.grant.token,
                    ),
                });
            }
        }
        violations
    }

    fn written_too_late(&self, write: &LateWrite) -> Violation {
        let grant = &write.grant;
        let current = self.name_of(write.current);
        let what = format!(
            "a former holder's write was applied: {} wrote {} under token {}, but {current} had it",
            grant.lessee, grant.key, grant.token,
        );
        Violation { at: write.at, what }
    }

    fn name_of(&self, granted: Granted) -> String {
        let tenure = self.tenures.iter().find(|tenure| granted.is_of(&tenure.grant));
        let lessee =
            tenure.map_or("a lessee that got no answer", |tenure| tenure.grant.lessee.as_str());
        format!("{lessee} under token {}", granted.token)
    }
}

impl Granted {
    fn is_of(&self, grant: &Grant) -> bool {
        self.nonce == grant.nonce && self.token == grant.token
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.3} ms  {}", self.at.as_secs_f64() * 1000.0, self.what)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::grant::Claim;

    const SECOND: Duration = Duration::from_secs(1);

    fn grant(lessee: &str) -> Grant {
        let (key, lessee) = ("key".parse().unwrap(), lessee.parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), SECOND);
        claim.granted(FencingToken::new(5).unwrap())
    }

    fn tenure(grant: &Grant, obtained_at: Duration) -> Tenure {
        Tenure {
            grant: grant.clone(),
            obtained_at,
            claims_until: obtained_at + SECOND * 2,
            ended: None,
            notified: None,
            ran_after: None,
            killed: false,
        }
    }

    fn granted_in_turn(pages: &mut Pages, grants: [&Grant; 3]) -> [bool; 3] {
        let mut at = Duration::ZERO;
        grants.map(|Grant { key, nonce, token, .. }| {
            at += SECOND;
            pages.add(key, Granted { at, nonce: *nonce, token: *token })
        })
    }

    #[test]
    fn claim_granted_twice_is_judged_by_its_last_grant() {
        let (first, other) = (grant("first"), grant("other"));
        let mut pages = Pages::default();

        assert_eq!(granted_in_turn(&mut pages, [&first, &other, &first]), [true; 3]);
        let late = tenure(&first, SECOND * 3);

        assert_eq!(pages.held_too_long(&late), None);
    }

    #[test]
    fn tenure_beyond_the_next_grant_is_a_violation() {
        let (first, other) = (grant("first"), grant("other"));
        let mut pages = Pages::default();
        granted_in_turn(&mut pages, [&first, &other, &first]);

        let early = pages.held_too_long(&tenure(&first, SECOND * 3 / 2));
        let between = pages.held_too_long(&tenure(&other, SECOND * 5 / 2));

        assert_eq!(early.map(|violation| violation.at), Some(SECOND * 2));
        assert_eq!(between.map(|violation| violation.at), Some(SECOND * 3));
    }

    #[test]
    fn repeated_answer_is_no_new_grant() {
        let first = grant("first");
        let mut pages = Pages::default();

        assert_eq!(granted_in_turn(&mut pages, [&first; 3]), [true, false, false]);
    }
}
