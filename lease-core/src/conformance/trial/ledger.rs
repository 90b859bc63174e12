//! What happened in a trial, and whether it may: grants as the store gave them, tenures as
//! their holders believed in them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::simulation::WorldTime;
use crate::heartbeat::lease_cell::{Ending, LeaseCell};
use crate::key::{LeaseKey, Lessee};
use crate::store::grant::Grant;
use crate::store::nonce::Nonce;
use crate::token::FencingToken;

/// The notebook of a trial, as one process writes in it. All times in it are true ones.
#[derive(Clone)]
pub struct Ledger {
    time: WorldTime,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Default)]
struct Pages {
    events: Vec<Event>,
    /// When each grant came to be, by key and in order.
    grants: HashMap<LeaseKey, Vec<Granted>>,
    writes: usize,
    late_writes: Vec<LateWrite>,
    tenures: Vec<Tenure>,
    others: Vec<Violation>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The time since the world began.
    pub at: Duration,
    /// What happened, in a sentence that names to whom.
    pub what: String,
}

/// A promise that was broken: when, to whom, and how.
pub type Violation = Event;

/// What one holder believed of one grant.
#[derive(Debug, Clone)]
pub(super) struct Tenure {
    pub(super) grant: Grant,
    pub(super) obtained_at: Duration,
    /// Until when the lease would say that it is held, if nothing more happened to it.
    pub(super) claims_until: Duration,
    /// When it was seen to have ended, and how.
    pub(super) ended: Option<(Duration, Ending)>,
    /// When its holder was told that it was lost.
    pub(super) told: Option<Duration>,
    /// When its process first ran after the deadline.
    pub(super) ran_after: Option<Duration>,
    pub(super) killed: bool,
}

/// By when a process has to have noticed that a deadline has passed. That takes a timer; those of
/// a suspended machine have stood still, so after waking up leases look at the clock again within
/// a heartbeat period, and whenever they are asked or polled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notices {
    pub(super) woken_at: Duration,
    pub(super) within: Duration,
}

/// A grant, as the store gave it. A late duplicate of a claim may be granted under its nonce again,
/// with another token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Granted {
    at: Duration,
    nonce: Nonce,
    token: FencingToken,
}

/// A write that was applied under a grant that was no longer the last.
struct LateWrite {
    at: Duration,
    grant: Grant,
    /// Whose the key was.
    current: Granted,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Leases that somebody obtained.
    pub tenures: usize,
    /// Leases that went to somebody else without having been given back.
    pub takeovers: usize,
    /// Take-overs before which the loser's process ran, and so had to be told.
    pub told_first: usize,
    /// Writes under a grant that the store applied.
    pub writes: usize,
}

impl Ledger {
    pub(super) fn new(time: WorldTime) -> Self {
        Self { time, pages: Arc::default() }
    }

    /// The same notebook, written in by another process.
    pub(super) fn kept_by(&self, time: WorldTime) -> Self {
        Self { time, pages: Arc::clone(&self.pages) }
    }

    /// The time since the world began.
    pub fn now(&self) -> Duration {
        self.time.now()
    }

    /// Notes what happened, for the trace of a trial that fails.
    pub fn note(&self, what: impl Into<String>) {
        self.note_at(self.now(), what);
    }

    pub(super) fn note_at(&self, at: Duration, what: impl Into<String>) {
        self.pages().events.push(Event { at, what: what.into() });
    }

    /// Notes that a store has given `grant`; repetitions of the answer do not count.
    pub fn granted(&self, grant: &Grant) {
        let granted = Granted { at: self.now(), nonce: grant.nonce, token: grant.token };
        let mut pages = self.pages();
        if !pages.add(&grant.key, granted) {
            return;
        }
        let what = format!("{} granted to {} under token {}", grant.key, grant.lessee, grant.token);
        pages.events.push(Event { at: granted.at, what });
    }

    /// Notes that a store has applied a write under `grant`.
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
            told: None,
            ran_after: None,
            killed: false,
        });
        pages.tenures.len() - 1
    }

    pub(super) fn told(&self, tenure: usize) {
        let now = self.now();
        let mut pages = self.pages();
        if let Some(tenure) = pages.tenures.get_mut(tenure) {
            tenure.told = Some(now);
        }
    }

    /// Looks at a lease from within its process, between two steps: whether it goes on. Changes
    /// nothing: whether anybody notices that it has run out is what is to be seen.
    pub(super) fn look_at(&self, number: usize, hold: &LeaseCell, notices: Notices) -> bool {
        let now = self.now();
        let mut pages = self.pages();
        let Some(tenure) = pages.tenures.get_mut(number) else { return false };
        let left = hold.clock().timer_for(hold.remaining());
        if left.is_zero() {
            let since = tenure.claims_until.max(notices.woken_at);
            if now > since + notices.within {
                tenure.ran_after.get_or_insert(now);
            }
        } else {
            tenure.claims_until = tenure.claims_until.max(now + left);
        }
        let Some(ending) = hold.noticed_ending() else { return true };
        tenure.ended = Some((now, ending));
        let grant = &tenure.grant;
        let what = format!(
            "{} no longer holds {} under token {}: {ending:?}",
            grant.lessee, grant.key, grant.token
        );
        pages.events.push(Event { at: now, what });
        false
    }

    /// Nobody is left who could be told.
    pub(super) fn killed(&self, tenure: usize) {
        if let Some(tenure) = self.pages().tenures.get_mut(tenure) {
            tenure.killed = true;
        }
    }

    /// Notes a violation that others have found.
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
                let had_to_be_told = tenure.ran_after.is_some_and(|ran| ran <= taken);
                figures.told_first += usize::from(had_to_be_told && !tenure.killed);
            }
        }
        figures
    }

    /// Whether anybody obtained `key` after `since`, and when first.
    pub(super) fn obtained_since(&self, since: Duration) -> Vec<(Duration, Lessee)> {
        let pages = self.pages();
        let later = pages.tenures.iter().filter(|tenure| tenure.obtained_at >= since);
        later.map(|tenure| (tenure.obtained_at, tenure.grant.lessee.clone())).collect()
    }

    /// Everything that must not have happened.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let pages = self.pages();
        let mut violations: Vec<_> =
            pages.tenures.iter().filter_map(|tenure| pages.held_too_long(tenure)).collect();
        violations.extend(pages.tenures.iter().filter_map(|tenure| pages.told_too_late(tenure)));
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
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    /// Adds a grant of `key`; `false` for a repeated answer.
    ///
    /// A claim whose votes ran out may be granted again under its token, after votes for another. That
    /// is a grant of its own.
    fn add(&mut self, key: &LeaseKey, granted: Granted) -> bool {
        let grants = self.grants.entry(key.clone()).or_default();
        let mut of_claim = grants.iter().rev().take_while(|earlier| earlier.nonce == granted.nonce);
        let is_new = !of_claim.any(|earlier| earlier.token == granted.token);
        if is_new {
            grants.push(granted);
        }
        is_new
    }

    /// To which other claim the key of `tenure` went next.
    fn successor(&self, tenure: &Tenure) -> Option<Granted> {
        let grants = self.grants.get(&tenure.grant.key)?;
        let is_own = |granted: &Granted| granted.is_of(&tenure.grant);
        // The last one that the holder can have heard of: a tenure begins after its grant.
        let was_heard = |granted: &Granted| is_own(granted) && granted.at <= tenure.obtained_at;
        let own = grants.iter().rposition(was_heard).or_else(|| grants.iter().position(is_own))?;
        let mut later = grants.iter().skip(own + 1);
        later.find(|granted| granted.nonce != tenure.grant.nonce).copied()
    }

    /// When the key of `tenure` went to the next, if it was not given back before.
    fn taken_over(&self, tenure: &Tenure) -> Option<Duration> {
        let taken = self.successor(tenure)?.at;
        let given_back = matches!(tenure.ended, Some((at, Ending::Released)) if at <= taken);
        (!given_back).then_some(taken)
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

    fn told_too_late(&self, tenure: &Tenure) -> Option<Violation> {
        let taken = self.taken_over(tenure)?;
        let ran_in_time = tenure.ran_after.is_some_and(|ran| ran <= taken);
        let told_in_time = tenure.told.is_some_and(|told| told <= taken);
        (ran_in_time && !told_in_time && !tenure.killed).then(|| Violation {
            at: taken,
            what: format!(
                "loss told too late: {} lost {} (token {}) at {:?}, ran before it went to the \
                 next, and was told at {:?}",
                tenure.grant.lessee,
                tenure.grant.key,
                tenure.grant.token,
                tenure.claims_until,
                tenure.told,
            ),
        })
    }

    /// Whoever obtained a key later has the larger token.
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
            "a former holder's write was applied: {}'s under token {} of {}, which {current} had",
            grant.lessee, grant.token, grant.key,
        );
        Violation { at: write.at, what }
    }

    fn name_of(&self, granted: Granted) -> String {
        let tenure = self.tenures.iter().find(|tenure| granted.is_of(&tenure.grant));
        let lessee = tenure.map_or("nobody who heard of it", |tenure| tenure.grant.lessee.as_str());
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

    /// Holds from `obtained_at` for two seconds.
    fn tenure(grant: &Grant, obtained_at: Duration) -> Tenure {
        Tenure {
            grant: grant.clone(),
            obtained_at,
            claims_until: obtained_at + SECOND * 2,
            ended: None,
            told: None,
            ran_after: None,
            killed: false,
        }
    }

    /// Grants to one, to another, and to the first again, a second apart; says what was new.
    fn granted_in_turn(pages: &mut Pages, grants: [&Grant; 3]) -> [bool; 3] {
        let mut at = Duration::ZERO;
        grants.map(|Grant { key, nonce, token, .. }| {
            at += SECOND;
            pages.add(key, Granted { at, nonce: *nonce, token: *token })
        })
    }

    #[test]
    fn claim_granted_again_after_another_is_judged_by_its_last_grant() {
        let (first, other) = (grant("first"), grant("other"));
        let mut pages = Pages::default();

        assert_eq!(granted_in_turn(&mut pages, [&first, &other, &first]), [true; 3]);
        let late = tenure(&first, SECOND * 3);

        assert_eq!(pages.held_too_long(&late), None);
    }

    #[test]
    fn holder_of_the_first_grant_is_found_beside_its_successor() {
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
