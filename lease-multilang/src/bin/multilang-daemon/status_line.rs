//! How the daemon gets on: a line that is redrawn on a terminal, a line in the log elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lease_kinesis::{Status, WorkerHandle};
use tokio::time::{MissedTickBehavior, interval};
use tracing::info;

/// The last line of a terminal.
#[derive(Clone)]
pub(crate) struct StatusLine(Option<ProgressBar>);

impl StatusLine {
    /// Where stderr is a terminal.
    pub(crate) fn begin() -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            bar
        }))
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// Writes above it.
    pub(crate) fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Tells how the worker gets on, for as long as this runs.
pub(crate) async fn tell(worker: WorkerHandle, line: StatusLine) {
    let every = if line.is_shown() { SECOND } else { MINUTE };
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is at once, when there is nothing to tell.
    ticks.tick().await;
    let mut before = worker.status();
    loop {
        ticks.tick().await;
        let status = worker.status();
        let told = Told::of(&before, &status, every);
        if let Some(bar) = &line.0 {
            bar.set_message(told.line());
        } else {
            let Told { shards, records, per_second, behind, restarts } = told;
            info!(shards, records, per_second, ?behind, restarts, "so far");
        }
        before = status;
    }
}

/// What is told.
#[derive(Debug, PartialEq)]
struct Told {
    shards: usize,
    records: u64,
    per_second: u64,
    /// Of the shard that is furthest behind.
    behind: Duration,
    restarts: u64,
}

impl Told {
    fn of(before: &Status, status: &Status, time: Duration) -> Self {
        let Status { shards, counters, .. } = status;
        let more = counters.records.saturating_sub(before.counters.records);
        Self {
            shards: shards.len(),
            records: counters.records,
            per_second: more / time.as_secs().max(1),
            behind: shards.iter().map(|shard| shard.behind).max().unwrap_or_default(),
            restarts: counters.restarts,
        }
    }

    fn line(&self) -> String {
        let Self { shards, records, per_second, behind, restarts } = self;
        let behind = behind.as_secs_f64();
        format!(
            "{shards} shards · {records} records · {per_second}/s · behind by {behind:.1} s · \
             {restarts} restarts"
        )
    }
}

const SECOND: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_what_came_since_the_last_look() {
        let (mut before, mut now) = (Status::default(), Status::default());
        (before.counters.records, now.counters.records) = (100, 700);
        now.counters.restarts = 2;

        let told = Told::of(&before, &now, MINUTE);

        assert_eq!((told.records, told.per_second, told.restarts), (700, 10, 2));
        let line = "0 shards · 700 records · 10/s · behind by 0.0 s · 2 restarts";
        assert_eq!(told.line(), line);
    }
}
