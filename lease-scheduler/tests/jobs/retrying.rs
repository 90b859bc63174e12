//! Attempts at a tick: their number, the pauses between them, and when they end.

use std::time::Duration;

use lease_core::conformance::Call;
use lease_core::{LeaseOptions, Locker};
use lease_scheduler::{Ending, Job, JobError, Schedule, Scheduler};
use tokio::time::sleep;

use crate::harness::{Body, SchedulerHarness, at, key, secs};

fn daily() -> Schedule {
    Schedule::cron("0 1 * * *", "UTC").unwrap()
}

fn failing(harness: &SchedulerHarness, by: &str, length: Duration) -> Job {
    let (log, by) = (harness.log.clone(), by.to_owned());
    let job = Job::new(key("job"), move |job| {
        let (log, by) = (log.clone(), by.clone());
        async move {
            let _noted = log.begin(&by, &job);
            sleep(length).await;
            Err(JobError::from("no such table"))
        }
    });
    job.on(daily())
}

/// The seconds between the end of each body and the start of the next body.
fn pauses(bodies: &[Body]) -> Vec<u64> {
    let pause = |pair: &[Body]| pair[1].began.since(pair[0].ended.unwrap()).as_secs();
    bodies.windows(2).map(pause).collect()
}

/// The first attempt may start at most a minute late. The second attempt starts forty minutes late.
#[tokio::test(start_paused = true)]
async fn attempts_follow_a_long_first_attempt() {
    let harness = SchedulerHarness::new();
    let jobs = |by| [failing(&harness, by, secs(2400)).attempts(3)];
    let (a, b) = (harness.start("a", jobs("a")), harness.start("b", jobs("b")));

    harness.until("2026-11-21T12:00:00Z").await;

    let attempts: Vec<_> = harness.log.bodies().iter().map(|body| body.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(harness.log.ticks().into_keys().collect::<Vec<_>>(), [at("2026-11-21T01:00:00Z")]);
    assert_eq!(harness.log.overlaps(), 0);
    let texts = [a.reports.texts(), b.reports.texts()].concat();
    assert!(!texts.iter().any(|texts| texts.starts_with("missed")), "{texts:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_end_when_the_next_tick_is_due() {
    let harness = SchedulerHarness::new();
    let job = failing(&harness, "a", secs(2400)).on(Schedule::cron("0 * * * *", "UTC").unwrap());
    let _machine = harness.start("a", [job.attempts(9)]);

    harness.until("2026-11-21T03:59:00Z").await;

    let begun: Vec<_> = harness
        .log
        .bodies()
        .iter()
        .map(|body| (body.scheduled.strftime("%H").to_string(), body.attempt))
        .collect();
    let of = |hour: &str| begun.iter().filter(|(tick, _)| tick == hour).count();
    // The second attempt at the tick of 1:00 ends at 2:20, too late for the tick of 2:00.
    assert_eq!((of("01"), of("02"), of("03")), (2, 0, 2), "{begun:?}");
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_the_longest_on_every_machine() {
    let harness = SchedulerHarness::new();
    let jobs =
        |by| [failing(&harness, by, secs(1)).attempts(5).backoff(secs(10), secs(25)).unwrap()];
    let _machines = ["a", "b", "c"].map(|name| harness.start(name, jobs(name)));

    harness.until("2026-11-21T02:00:00Z").await;

    let bodies = harness.log.bodies();
    let pauses = pauses(&bodies);
    assert_eq!(pauses.len(), 4, "{bodies:?}");
    for (pause, expected) in pauses.iter().zip([10, 20, 25, 25]) {
        assert!((expected..expected + 3).contains(pause), "{pauses:?}: a poll late at most");
    }
}

#[tokio::test(start_paused = true)]
async fn default_pauses_start_at_one_second_and_double() {
    let harness = SchedulerHarness::new();
    let _machine = harness.start("a", [failing(&harness, "a", secs(1)).attempts(4)]);

    harness.until("2026-11-21T02:00:00Z").await;

    let bodies = harness.log.bodies();
    let pauses = pauses(&bodies);
    assert!(pauses.iter().zip([1, 2, 4]).all(|(pause, least)| (least..least + 3).contains(pause)));
    assert_eq!(pauses.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn attempt_of_dead_machine_is_followed_by_another() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(90))).on(daily()).attempts(2);
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    harness.until("2026-11-21T01:00:40Z").await;
    let (dies, lives) = if harness.log.bodies()[0].by == "a" { (a, b) } else { (b, a) };
    dies.crash();

    harness.until("2026-11-21T01:10:00Z").await;

    let attempts: Vec<_> = harness.log.bodies().iter().map(|body| body.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    assert!(harness.log.bodies()[1].is_complete);
    let endings: Vec<_> =
        lives.handle.history("job").await.unwrap().iter().map(|run| run.ending).collect();
    assert_eq!(endings, [Ending::Finished, Ending::Died]);
    assert_eq!(lives.reports.counts()["died"], 1);
}

#[test]
fn backoff_out_of_range_is_rejected() {
    let job = || Job::new(key("job"), |_job| async { Ok(()) });

    assert!(job().backoff(secs(2), secs(1)).is_err());
    assert!(job().backoff(secs(1), secs(8 * 86_400)).is_err());
    assert!(job().backoff(secs(0), secs(0)).is_ok());
}

/// The scheduler retries a held key at the locker's poll interval: three or four times a minute.
#[tokio::test(start_paused = true)]
async fn lease_ttl_keeps_other_options_of_locker() {
    let harness = SchedulerHarness::new();
    let machine = harness.start("other", []);
    let connection = machine.connection.clone();
    let options = LeaseOptions::default().with_poll_interval(secs(20)).unwrap();
    let locker = Locker::new(connection.clone()).with_options(options);
    let job =
        Job::new(key("job"), harness.log.body("a", secs(1))).on(Schedule::every(secs(60)).unwrap());
    let job = job.lease_ttl(secs(10)).unwrap();
    let held = Locker::new(harness.store.clone());
    let _lease = held.obtain(&key("job")).await.unwrap().into_lease().unwrap();
    let clock = std::sync::Arc::<lease_scheduler::SkewedWallClock>::clone(&machine.wall);
    let scheduler =
        Scheduler::builder(locker, connection.clone()).with_wall_clock(clock).with_job(job).build();
    let running = tokio::spawn(scheduler.unwrap().run());
    harness.until("2026-11-21T00:00:59Z").await;
    let before = connection.calls(Call::Obtain);

    harness.until("2026-11-21T00:01:59Z").await;

    let asked = connection.calls(Call::Obtain) - before;
    assert!((1..=4).contains(&asked), "asked {asked} times in a minute");
    running.abort();
}
