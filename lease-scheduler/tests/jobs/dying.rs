//! Machines that die during a run. The next machine that sees the lease expire writes the death to
//! the history.

use lease_core::Locker;
use lease_scheduler::{Ending, Job, Schedule, Scheduler};
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;

use crate::harness::{SchedulerHarness, TTL, at, key, secs};

fn daily() -> Schedule {
    Schedule::cron("0 1 * * *", "UTC").unwrap()
}

fn lines_of(warnings: &Warnings) -> Vec<String> {
    let mut lines = warnings.lines();
    lines.retain(|line| line.contains("job died"));
    lines
}

#[tokio::test(start_paused = true)]
async fn run_of_dead_machine_is_reported_by_one_other_machine() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(3600))).on(daily());
    let mut machines: Vec<_> = ["a", "b", "c"].map(|name| harness.start(name, [job(name)])).into();
    harness.until("2026-11-21T01:20:00Z").await;
    let by = harness.log.bodies()[0].by.clone();
    let place = machines.iter().position(|machine| machine.reports.texts().is_empty()).unwrap();
    let running = machines[place].handle.history("job").await.unwrap();
    assert_eq!(running[0].ending, Ending::Running);
    machines.remove(place).crash();

    sleep(TTL * 2).await;

    let lines = lines_of(&warnings);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for field in ["job=job", "attempt=1", "scheduled=2026-11-21T01:00:00Z", &format!("by=\"{by}\"")]
    {
        assert!(lines[0].contains(field), "{field}: {lines:?}");
    }
    let died: Vec<_> =
        machines.iter().filter_map(|machine| machine.reports.counts().remove("died")).collect();
    assert_eq!(died, [1], "one machine reports it");
    let history = machines[0].handle.history("job").await.unwrap();
    assert_eq!((history.len(), history[0].ending, history[0].ended), (1, Ending::Died, None));
    assert!(harness.is_free("job").await);
    assert_eq!(harness.log.count(), 1, "the tick is not started again");
}

#[tokio::test(start_paused = true)]
async fn restarted_process_reports_its_own_death() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(3600))).on(daily());
    let machine = harness.start("a", [job("a")]);
    harness.until("2026-11-21T01:20:00Z").await;
    machine.crash();
    sleep(secs(5)).await;

    let again = harness.start("a", [job("a")]);
    sleep(TTL * 2).await;

    assert_eq!(lines_of(&warnings).len(), 1);
    assert_eq!(again.reports.counts()["died"], 1);
}

/// No scheduler runs after the death that could write the death to the history.
#[tokio::test(start_paused = true)]
async fn history_distinguishes_dead_run_from_current_run() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(3600))).on(daily());
    let machine = harness.start("a", [job("a")]);
    let operator = Scheduler::builder(Locker::new(harness.store.clone()), harness.store.clone());
    let operator = operator.with_job(job("operator")).build().unwrap();
    let history = async || operator.handle().history("job").await.unwrap();

    harness.until("2026-11-21T01:20:00Z").await;
    assert_eq!(history().await[0].ending, Ending::Running);
    machine.crash();
    assert_eq!(history().await[0].ending, Ending::Running, "its lease is still held");
    sleep(TTL).await;

    let runs = history().await;
    assert_eq!((runs.len(), runs[0].ending), (1, Ending::Died));
    assert_eq!(runs[0].scheduled, at("2026-11-21T01:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn finished_run_is_not_reported_as_dead() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| {
        let job = Job::new(key("job"), harness.log.body(by, secs(50)));
        job.on(Schedule::cron("* * * * *", "UTC").unwrap())
    };
    let machines = ["a", "b", "c"].map(|name| harness.start(name, [job(name)]));

    harness.until("2026-11-21T03:00:30Z").await;

    assert_eq!(warnings.lines(), [""; 0]);
    assert!(machines.iter().all(|machine| !machine.reports.counts().contains_key("died")));
    assert_eq!(harness.log.count(), 180);
}
