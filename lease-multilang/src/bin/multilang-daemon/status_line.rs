//! Reports the daemon's progress in a status line on a terminal, or in log messages elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lease_kinesis::{Status, WorkerHandle};
use tokio::time::{MissedTickBehavior, interval};
use tracing::info;

/// Without a terminal, the value is `None`.
#[derive(Clone)]
pub(crate) struct StatusLine(Option<ProgressBar>);

impl StatusLine {
    pub(crate) fn start() -> Self {
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

    /// The line follows the text that `write` prints.
    pub(crate) fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Reports every second or minute, until the caller drops this future.
pub(crate) async fn report_progress(worker: WorkerHandle, line: StatusLine) {
    let every = if line.is_shown() { SECOND } else { MINUTE };
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once.
    ticks.tick().await;
    let mut before = worker.status();
    loop {
        ticks.tick().await;
        let status = worker.status();
        let progress = Progress::between(&before, &status, every);
        if let Some(bar) = &line.0 {
            bar.set_message(progress.line());
        } else {
            let Progress { shards, records, per_second, behind, restarts } = progress;
            info!(shards, records, per_second, ?behind, restarts, "progress");
        }
        before = status;
    }
}

/// `per_second` counts the records since the last report.
#[derive(Debug, PartialEq)]
struct Progress {
    shards: usize,
    records: u64,
    per_second: u64,
    /// The lag of the shard that is furthest behind.
    behind: Duration,
    restarts: u64,
}

impl Progress {
    fn between(before: &Status, status: &Status, time: Duration) -> Self {
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
    fn rate_counts_records_since_the_last_report() {
        let (mut before, mut now) = (Status::default(), Status::default());
        (before.counters.records, now.counters.records) = (100, 700);
        now.counters.restarts = 2;

        let progress = Progress::between(&before, &now, MINUTE);

        assert_eq!((progress.records, progress.per_second, progress.restarts), (700, 10, 2));
        let line = "0 shards · 700 records · 10/s · behind by 0.0 s · 2 restarts";
        assert_eq!(progress.line(), line);
    }
}
