//! Bodies that hang: they are dropped at the timeout, and logged.

use lease_scheduler::{Ending, Job, Outcome, Schedule};
use lease_test_servers::warnings::Warnings;

use crate::harness::{SchedulerHarness, at, key, secs};

fn hourly() -> Schedule {
    Schedule::cron("0 * * * *", "UTC").unwrap()
}

#[tokio::test(start_paused = true)]
async fn hung_body_is_dropped_at_timeout_and_next_tick_runs() {
    let harness = SchedulerHarness::new();
    let job = |by| {
        let hangs =
            |tick| if tick == at("2026-11-21T01:00:00Z") { secs(1_000_000) } else { secs(1) };
        let job = Job::new(key("job"), harness.log.body_of_lengths(by, hangs)).on(hourly());
        job.timeout(secs(600)).unwrap()
    };
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));

    harness.until("2026-11-21T01:10:05Z").await;
    assert!(harness.is_free("job").await);
    harness.until("2026-11-21T02:30:00Z").await;

    let bodies = harness.log.bodies();
    assert_eq!(bodies.len(), 2, "{bodies:?}");
    assert_eq!(bodies[0].ended.unwrap().since(bodies[0].began), secs(600));
    assert!(bodies[1].is_complete);
    let history = a.handle.history("job").await.unwrap();
    let endings: Vec<_> = history.iter().map(|run| run.ending).collect();
    assert_eq!(endings, [Ending::Finished, Ending::TimedOut]);
    let texts = [a.reports.texts(), b.reports.texts()].concat();
    let timed_out = texts.iter().filter(|texts| *texts == "timed out: still running after 600s");
    assert_eq!(timed_out.count(), 1, "{texts:?}");
}

#[tokio::test(start_paused = true)]
async fn timeout_counts_as_a_failed_attempt() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1_000_000))).on(hourly());
    let machine = harness.start("a", [job.timeout(secs(100)).unwrap().attempts(3)]);

    harness.until("2026-11-21T01:30:00Z").await;

    let attempts: Vec<_> = harness.log.bodies().iter().map(|body| body.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(machine.reports.counts()["timed out"], 3);
}

#[tokio::test(start_paused = true)]
async fn run_on_demand_times_out() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1_000_000)));
    let machine = harness.start("a", [job.timeout(secs(10)).unwrap()]);

    let run = machine.handle.run_now("job").await.unwrap();

    assert!(matches!(run.outcome, Outcome::TimedOut(limit) if limit == secs(10)), "{run:?}");
    assert!(harness.is_free("job").await);
}

#[tokio::test(start_paused = true)]
async fn overdue_run_is_logged_each_time_its_length_doubles() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1_000_000))).on(hourly());
    let (a, _b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));

    harness.until("2026-11-21T01:59:00Z").await;
    assert_eq!(warnings.lines(), [""; 0]);
    harness.until("2026-11-21T10:00:00Z").await;

    let lines = warnings.lines();
    for (line, age) in lines.iter().zip(["age=3600s", "age=7200s", "age=14400s", "age=28800s"]) {
        for field in ["job runs for longer than its period", "job=job", "period=3600s", age] {
            assert!(line.contains(field), "{field}: {line}");
        }
    }
    assert_eq!(lines.len(), 4, "{lines:?}");
    let history = a.handle.history("job").await.unwrap();
    assert_eq!((history.len(), history[0].ending), (1, Ending::Running));
}

#[test]
fn timeout_of_zero_is_rejected() {
    let refused = Job::new(key("job"), |_job| async { Ok(()) }).timeout(secs(0)).unwrap_err();

    assert_eq!(refused.to_string(), "the timeout of job is zero");
}
