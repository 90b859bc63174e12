//! The result of a trial.

use std::time::Duration;

use super::ledger::{Event, Figures, Violation};

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The seed of the trial, which repeats the trial exactly.
    pub seed: u64,
    /// The broken promises, in order.
    pub violations: Vec<Violation>,
    /// All events, in order.
    pub trace: Vec<Event>,
    /// Counts of events.
    pub figures: Figures,
}

impl Verdict {
    /// Returns the last `events` events before the first violation, and all violations.
    pub fn report(&self, events: usize) -> String {
        let first = self.violations.first().map_or(Duration::MAX, |violation| violation.at);
        let end = self.trace.partition_point(|event| event.at <= first);
        let start = end.saturating_sub(events);
        let events = self.trace.get(start..end).unwrap_or_default().iter().map(Event::to_string);
        let broken = |violation: &Violation| format!("{violation}   <-- VIOLATION");
        let lines = events.chain(self.violations.iter().map(broken));
        std::iter::once(format!("seed {}", self.seed)).chain(lines).collect::<Vec<_>>().join("\n")
    }
}
