//! Which past runs a query returns.

use jiff::Timestamp;

use crate::history::{Ending, PastRun};

/// Selects past runs of a job: by time, by ending, and by number. By default, all.
///
/// # Examples
///
/// ```
/// use lease_scheduler::{Ending, RunQuery};
///
/// let failed_today = RunQuery::new()
///     .from("2026-11-21T00:00:00Z".parse()?)
///     .until("2026-11-22T00:00:00Z".parse()?)
///     .ending(Ending::Failed)
///     .limit(5);
/// # drop(failed_today);
/// # Ok::<_, lease_scheduler::jiff::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a query does nothing until it is used"]
pub struct RunQuery {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    ending: Option<Ending>,
    limit: Option<usize>,
}

impl RunQuery {
    /// Makes a query of all runs in the history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects runs that began at `from` or later, by the clocks of their machines.
    pub fn from(mut self, from: Timestamp) -> Self {
        self.from = Some(from);
        self
    }

    /// Selects runs that began before `until`, by the clocks of their machines.
    pub fn until(mut self, until: Timestamp) -> Self {
        self.until = Some(until);
        self
    }

    /// Selects runs that ended in this way.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = Some(ending);
        self
    }

    /// Selects at most `limit` runs, the latest ones.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns the selected ones of `runs`, which are the latest first.
    pub(super) fn select(&self, runs: Vec<PastRun>) -> Vec<PastRun> {
        let fits = |run: &PastRun| {
            self.from.is_none_or(|from| run.began >= from)
                && self.until.is_none_or(|until| run.began < until)
                && self.ending.is_none_or(|ending| run.ending == ending)
        };
        runs.into_iter().filter(fits).take(self.limit.unwrap_or(usize::MAX)).collect()
    }
}
