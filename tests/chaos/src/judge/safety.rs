//! Judges the safety of a run by its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::judge::ledger::{Effect, FaultRecord, Grant, Ledger};
use crate::judge::order::judge_order;
use crate::monotonic::Monotonic;

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Finding>,
    /// Overlaps that a fault excuses by the store's failure table.
    pub(crate) admitted: Vec<Finding>,
    pub(crate) ordered: usize,
    /// Pairs in the wrong order that a fault or an expiry excuses.
    pub(crate) overtaken: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    pub(crate) counter: usize,
    pub(crate) from: Monotonic,
    pub(crate) until: Monotonic,
    pub(crate) what: String,
    /// Lost writes explain the finding: see [`Ledger::explains`].
    pub(crate) is_explained: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// No two leases on a key are held at once.
    Overlap,
    /// No two grants share a token. A claim that was sent after a grant gets a larger token.
    Tokens,
    /// No write is accepted with a smaller token than an earlier write.
    OldToken,
    /// Each accepted write read the value of the write before it.
    LostUpdate,
    /// No claim overtakes a wait that was queued before the claim was sent, unless a fault or an
    /// expiry may have cost the wait its place.
    Order,
    Starved,
    /// A claim fails because of a wrong type only if its key has another type.
    WrongType,
}

pub(crate) fn judge(ledger: &Ledger, ttl: Duration) -> Verdict {
    let mut verdict = Verdict::default();
    let order = judge_order(ledger, ttl);
    (verdict.ordered, verdict.overtaken) = (order.judged, order.excused);
    verdict.violations.extend(order.findings);
    let counters: BTreeSet<_> = ledger.grants.iter().map(|grant| grant.counter).collect();
    for counter in counters {
        let grants: Vec<_> =
            ledger.grants.iter().filter(|grant| grant.counter == counter).collect();
        judge_key(ledger, &grants, &mut verdict);
        verdict.violations.extend(writes(counter, ledger));
    }
    verdict.sort();
    verdict
}

pub(crate) fn judge_key(ledger: &Ledger, grants: &[&Grant], verdict: &mut Verdict) {
    for found in overlaps(ledger, grants).into_iter().chain(tokens(ledger, grants)) {
        let by_fault = ledger.faults.iter().any(|fault| fault.admits(&found));
        let is_admitted = found.is_explained || found.rule == Rule::Overlap && by_fault;
        let findings = if is_admitted { &mut verdict.admitted } else { &mut verdict.violations };
        findings.push(found);
    }
}

impl Verdict {
    pub(crate) fn sort(&mut self) {
        self.violations.sort_by_key(|finding| (finding.from, finding.rule));
        self.admitted.sort_by_key(|finding| finding.from);
    }
}

impl FaultRecord {
    /// A fault excuses overlaps from its start until the former holder must consider its lease
    /// lost.
    fn admits(&self, overlap: &Finding) -> bool {
        let counters = self.counters.as_ref();
        match self.kind {
            _ if counters.is_some_and(|counters| !counters.contains(&overlap.counter)) => false,
            Effect::Exclusive => false,
            Effect::MayOverlap { until } => self.from <= overlap.from && overlap.until <= until,
        }
    }
}

/// Finds leases that were held at once, and leases with a smaller token that were held later. Such
/// a lease was granted first, so both leases existed at once.
fn overlaps(ledger: &Ledger, grants: &[&Grant]) -> Vec<Finding> {
    let mut held: Vec<_> =
        grants.iter().filter_map(|&grant| Some((grant, grant.held()?))).collect();
    held.sort_by_key(|(_, (from, _))| *from);
    let mut findings = Vec::new();
    let mut longest: Option<(&Grant, Monotonic)> = None;
    let mut largest: Option<(&Grant, Monotonic)> = None;
    for (grant, (from, until)) in held {
        if let Some((former, end)) = longest
            && from < end
        {
            let until = end.min(until);
            findings.push(Finding {
                rule: Rule::Overlap,
                counter: grant.counter,
                from,
                until,
                what: format!(
                    "{former} and {grant} were both held, for {:?} at least",
                    round(until.since(from))
                ),
                is_explained: false,
            });
        } else if let Some((former, end)) = largest
            && grant.token < former.token
        {
            findings.push(Finding {
                rule: Rule::Overlap,
                counter: grant.counter,
                from: end,
                until: from,
                what: format!("{grant} was held after {former}, but granted before it"),
                is_explained: ledger.explains(former, grant),
            });
        }
        if longest.is_none_or(|(_, end)| end < until) {
            longest = Some((grant, until));
        }
        if largest.is_none_or(|(former, _)| former.token < grant.token) {
            largest = Some((grant, until));
        }
    }
    findings
}

fn tokens(ledger: &Ledger, grants: &[&Grant]) -> Vec<Finding> {
    let mut asked = grants.to_vec();
    asked.sort_by_key(|grant| grant.asked);
    let mut known: Vec<_> =
        asked.iter().filter_map(|grant| Some((grant.held_from?, *grant))).collect();
    known.sort_by_key(|(at, _)| *at);
    let mut known = known.into_iter().peekable();
    let mut largest: Option<&Grant> = None;
    let mut seen: BTreeMap<u64, &Grant> = BTreeMap::new();
    let mut findings = Vec::new();
    for grant in asked {
        while let Some((_, earlier)) = known.next_if(|(at, _)| *at < grant.asked) {
            if largest.is_none_or(|largest| largest.token < earlier.token) {
                largest = Some(earlier);
            }
        }
        let finding = |earlier: &Grant, what: String| Finding {
            rule: Rule::Tokens,
            counter: grant.counter,
            from: grant.asked,
            until: grant.held_from.unwrap_or(grant.asked),
            what,
            is_explained: ledger.explains(earlier, grant),
        };
        if let Some(twin) = seen.insert(grant.token, grant) {
            findings.push(finding(twin, format!("{twin} and {grant} share a token")));
        }
        if let Some(earlier) = largest
            && grant.token < earlier.token
        {
            let what = format!("{grant} was asked for after {earlier} was obtained");
            findings.push(finding(earlier, what));
        }
    }
    findings
}

fn writes(counter: usize, ledger: &Ledger) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut largest, mut value) = (0, 0);
    let of_it = |write: &&crate::judge::ledger::Write| write.counter == counter && write.accepted;
    for write in ledger.writes.iter().filter(of_it) {
        let finding = |rule, what| Finding {
            rule,
            counter,
            from: write.sent.unwrap_or(write.at),
            until: write.at,
            what,
            is_explained: false,
        };
        if write.token < largest {
            findings.push(finding(
                Rule::OldToken,
                format!(
                    "a write of {} under token {} was accepted after token {largest}",
                    write.incarnation, write.token
                ),
            ));
        }
        largest = largest.max(write.token);
        if let Some(read) = write.read {
            if read != value {
                findings.push(finding(
                    Rule::LostUpdate,
                    format!(
                        "{} counted on from {read}, when {value} was reached",
                        write.incarnation
                    ),
                ));
            }
            value = read + 1;
        }
    }
    findings
}

pub(crate) fn starved(counter: usize, from: Monotonic, until: Monotonic) -> Finding {
    let what =
        format!("no worker obtained it within {:?} after the last fault", round(until.since(from)));
    Finding { rule: Rule::Starved, counter, from, until, what, is_explained: false }
}

fn round(length: Duration) -> Duration {
    Duration::from_micros(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
}

impl Grant {
    fn held(&self) -> Option<(Monotonic, Monotonic)> {
        Some((self.held_from?, self.held_until?))
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} ({})", self.token, self.incarnation)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "overlap",
            Self::Tokens => "tokens out of order",
            Self::OldToken => "old token accepted",
            Self::LostUpdate => "lost update",
            Self::Order => "overtaken in the queue",
            Self::Starved => "starved",
            Self::WrongType => "wrong type of a sound key",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::ledger::{Incarnation, Promotion, Write};
    use crate::store::Clocks;

    const SECOND: Duration = Duration::from_secs(1);

    struct Made {
        ledger: Ledger,
        start: Monotonic,
    }

    impl Made {
        fn new() -> Self {
            let start = Monotonic::now();
            Self { ledger: Ledger::new(start, Clocks::InStep), start }
        }

        fn held(&mut self, token: u64, from: u32, until: u32) -> &mut Self {
            let (from, until) = (self.start + SECOND * from, self.start + SECOND * until);
            self.ledger.granted(Grant {
                counter: 0,
                token,
                incarnation: incarnation(token),
                asked: from,
                by: "obtain".to_owned(),
                held_from: Some(from),
                held_until: Some(until),
                ended: None,
            });
            self
        }

        fn wrote(&mut self, token: u64, read: u64, accepted: bool) -> &mut Self {
            let (read, sent) = (Some(read), None);
            let (incarnation, at) = (incarnation(token), self.start);
            self.ledger.writes.push(Write {
                counter: 0,
                token,
                incarnation,
                read,
                sent,
                at,
                accepted,
            });
            self
        }

        fn fault(&mut self, from: u32, kind: Effect) -> &mut Self {
            let from = self.start + SECOND * from;
            let to = "server 1".to_owned();
            let counters = None;
            let fault = FaultRecord { name: "fault", to, from, until: from, kind, counters };
            self.ledger.faults.push(fault);
            self
        }

        fn broken(&self) -> Vec<Rule> {
            judge(&self.ledger, SECOND).violations.iter().map(|finding| finding.rule).collect()
        }
    }

    fn incarnation(token: u64) -> Incarnation {
        Incarnation { worker: usize::try_from(token).unwrap(), number: 1 }
    }

    #[test]
    fn holders_in_sequence_break_no_rule() {
        let mut made = Made::new();
        made.held(1, 0, 2).held(2, 3, 4).wrote(1, 0, true).wrote(2, 1, true).wrote(1, 1, false);

        assert_eq!(made.broken(), []);
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let mut made = Made::new();
        made.held(1, 0, 9).held(2, 3, 4).held(3, 5, 6);

        assert_eq!(made.broken(), [Rule::Overlap, Rule::Overlap]);
    }

    #[test]
    fn earlier_grant_held_later_is_found() {
        let mut made = Made::new();
        made.held(2, 0, 1).held(1, 2, 3);
        made.ledger.grants[1].asked = made.start;

        assert_eq!(made.broken(), [Rule::Overlap]);
    }

    #[test]
    fn overlap_is_admitted_only_within_the_window_of_a_fault() {
        let overlap = || {
            let mut made = Made::new();
            made.held(1, 0, 5).held(2, 3, 8);
            made
        };
        let wild =
            |made: &Made, until: u32| Effect::MayOverlap { until: made.start + SECOND * until };

        let mut made = overlap();
        made.fault(2, wild(&made, 5));
        assert_eq!(made.broken(), []);
        assert_eq!(judge(&made.ledger, SECOND).admitted.len(), 1);

        let mut too_long = overlap();
        too_long.fault(2, wild(&too_long, 4));
        assert_eq!(too_long.broken(), [Rule::Overlap]);

        let mut too_late = overlap();
        too_late.fault(4, wild(&too_late, 9));
        assert_eq!(too_late.broken(), [Rule::Overlap]);

        let mut tame = overlap();
        tame.fault(2, Effect::Exclusive);
        assert_eq!(tame.broken(), [Rule::Overlap]);
    }

    #[test]
    fn repeated_or_smaller_token_is_found() {
        let mut repeated = Made::new();
        repeated.held(1, 0, 1).held(1, 2, 3);
        assert_eq!(repeated.broken(), [Rule::Tokens]);

        let mut fallen = Made::new();
        fallen.held(2, 0, 1).held(1, 2, 3);
        assert_eq!(fallen.broken(), [Rule::Overlap, Rule::Tokens]);
    }

    #[test]
    fn smaller_token_is_admitted_after_lost_write_and_clock_step() {
        let judged = |clocks: Clocks, known: u64, at: u32| {
            let mut made = Made::new();
            made.ledger.clocks = clocks;
            made.held(20, 0, 1).held(10, 4, 5);
            let at = made.start + SECOND * at;
            made.ledger.promotions.push(Promotion { counter: 0, at, known });
            let verdict = judge(&made.ledger, SECOND);
            (verdict.violations.len(), verdict.admitted.len())
        };

        assert_eq!(judged(Clocks::Step, 9, 3), (0, 2));
        assert_eq!(judged(Clocks::InStep, 9, 3), (2, 0), "clocks in step");
        assert_eq!(judged(Clocks::Step, 20, 3), (2, 0), "the promoted server knew the token");
        assert_eq!(judged(Clocks::Step, 9, 6), (2, 0), "promoted after the smaller token");
    }

    #[test]
    fn overlap_is_admitted_only_on_counters_that_a_fault_hits() {
        let judged = |counter: usize| {
            let mut made = Made::new();
            made.held(1, 0, 5).held(2, 3, 8);
            made.fault(2, Effect::MayOverlap { until: made.start + SECOND * 5 });
            made.ledger.faults[0].counters = Some(vec![counter]);
            made.broken()
        };

        assert_eq!(judged(0), []);
        assert_eq!(judged(1), [Rule::Overlap]);
    }

    #[test]
    fn old_token_and_lost_update_are_found() {
        let mut made = Made::new();
        made.held(1, 0, 1).wrote(2, 0, true).wrote(1, 1, true).wrote(2, 1, true);

        assert_eq!(made.broken(), [Rule::OldToken, Rule::LostUpdate]);
    }
}
