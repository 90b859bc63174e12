//! Judges the safety of a load, by the rules of the counters.

use crate::judge::ledger::Ledger;
use crate::judge::safety::{Finding, Rule, Verdict, judge_key};
use crate::load::log::{Extent, LoadLog, WrongType};

pub(crate) fn judge_load(ledger: &Ledger, log: &LoadLog) -> Verdict {
    let mut verdict = Verdict::default();
    for grants in log.grants() {
        let grants: Vec<_> = grants.iter().collect();
        judge_key(ledger, &grants, &mut verdict);
    }
    let failed = log.wrong_types.iter().filter(|failed| extent_of(log, failed).is_none());
    verdict.violations.extend(failed.map(|failed| Finding {
        rule: Rule::WrongType,
        counter: failed.key,
        from: failed.asked,
        until: failed.at,
        what: format!("a claim failed, but the key had no other type: {}", failed.error),
        is_explained: false,
    }));
    verdict.sort();
    verdict
}

/// The servers on which the key of a failed claim had another type during the claim. `None` without
/// such a server.
pub(crate) fn extent_of(log: &LoadLog, failed: &WrongType) -> Option<Extent> {
    let spoiled = log.spoiled.iter().filter(|spoiled| {
        spoiled.key == failed.key
            && spoiled.from <= failed.at
            && spoiled.until.is_none_or(|until| failed.asked <= until)
    });
    // A list on all servers explains more than a list on some servers.
    spoiled.map(|spoiled| spoiled.extent).min_by_key(|extent| *extent == Extent::Some)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::judge::ledger::Incarnation;
    use crate::load::Load;
    use crate::monotonic::Monotonic;
    use crate::store::Clocks;
    use crate::worker::message::Message;

    struct Made {
        start: Monotonic,
        log: LoadLog,
    }

    impl Made {
        fn new() -> Self {
            Self { start: Monotonic::now(), log: LoadLog::new(Load { tasks: 2, keys: 3 }) }
        }

        fn at(&self, seconds: u64) -> Monotonic {
            self.start + Duration::from_secs(seconds)
        }

        fn held(&mut self, worker: usize, (counter, token): (usize, u64), from: u64, until: u64) {
            let incarnation = Incarnation { worker, number: 1 };
            let (asked, held, until) = (self.at(from), self.at(from), self.at(until));
            let by = "claim".to_owned();
            self.log.note(incarnation, Message::Obtained { counter, token, asked, held, by });
            self.log.note(incarnation, Message::Held { counter, token, at: until });
        }

        fn failed(&mut self, counter: usize, from: u64, until: u64) {
            let (asked, at) = (self.at(from), self.at(until));
            let incarnation = Incarnation { worker: 1, number: 1 };
            let error = "WRONGTYPE".to_owned();
            self.log.note(incarnation, Message::WrongType { counter, asked, at, error });
        }

        fn broken(&self) -> Vec<(usize, Rule)> {
            let ledger = Ledger::new(self.start, Clocks::InStep);
            let violations = judge_load(&ledger, &self.log).violations;
            violations.iter().map(|finding| (finding.counter, finding.rule)).collect()
        }
    }

    #[test]
    fn holders_of_different_keys_break_no_rule() {
        let mut made = Made::new();
        made.held(1, (0, 1), 0, 9);
        made.held(2, (1, 1), 0, 9);
        made.held(2, (0, 2), 10, 11);

        assert_eq!(made.broken(), []);
    }

    #[test]
    fn two_holders_of_one_key_are_found() {
        let mut made = Made::new();
        made.held(1, (2, 1), 0, 9);
        made.held(2, (2, 2), 8, 10);

        assert_eq!(made.broken(), [(2, Rule::Overlap)]);
    }

    #[test]
    fn repeated_token_of_one_key_is_found() {
        let mut made = Made::new();
        made.held(1, (2, 1), 0, 1);
        made.held(2, (2, 1), 2, 3);

        assert_eq!(made.broken(), [(2, Rule::Tokens)]);
    }

    #[test]
    fn wrong_type_is_admitted_only_on_its_key_and_in_its_time() {
        let mut made = Made::new();
        made.log.spoil(1, made.at(0));
        made.failed(1, 0, 2);
        made.failed(0, 3, 4);
        assert_eq!(made.broken(), [(0, Rule::WrongType)]);

        made.log.mend(1, Extent::All);
        made.failed(1, 50, 60);
        assert_eq!(made.broken(), [(0, Rule::WrongType), (1, Rule::WrongType)]);
    }

    #[test]
    fn key_spoiled_on_some_servers_explains_a_failed_claim() {
        let mut made = Made::new();
        made.log.spoil(1, made.at(0));
        made.log.mend(1, Extent::Some);
        made.failed(1, 0, 2);
        made.failed(1, 50, 60);

        assert_eq!(made.broken(), [(1, Rule::WrongType)]);
    }
}
