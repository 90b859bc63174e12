//! Attempts: counted from the first start, with pauses between them.

use std::time::Duration;

use lease_core::conformance::Call;
use lease_core::{LeaseOptions, Locker};
use lease_scheduler::{Ending, Job, JobError, Schedule, Scheduler};
use tokio::time::sleep;

use crate::world::{World, at, key, secs};

fn daily() -> Schedule {
    Schedule::cron("0 1 * * *", "UTC").unwrap()
}

/// A body that takes `length`, and fails.
fn failing(world: &World, by: &str, length: Duration) -> Job {
    let (log, by) = (world.log.clone(), by.to_owned());
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

/// A tick may begin a minute late; the second attempt begins forty minutes late.
#[tokio::test(start_paused = true)]
async fn attempts_follow_a_first_one_that_was_long() {
    let world = World::new();
    let jobs = |by| [failing(&world, by, secs(2400)).attempts(3)];
    let (a, b) = (world.start("a", jobs("a")), world.start("b", jobs("b")));

    world.until("2026-11-21T12:00:00Z").await;

    let attempts: Vec<_> = world.log.bodies().iter().map(|body| body.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(world.log.ticks().into_keys().collect::<Vec<_>>(), [at("2026-11-21T01:00:00Z")]);
    assert_eq!(world.log.overlaps(), 0);
    let words = [a.told.words(), b.told.words()].concat();
    assert!(!words.iter().any(|words| words.starts_with("missed")), "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_end_when_the_next_tick_is_due() {
    let world = World::new();
    let job = failing(&world, "a", secs(2400)).on(Schedule::cron("0 * * * *", "UTC").unwrap());
    let _machine = world.start("a", [job.attempts(9)]);

    world.until("2026-11-21T03:59:00Z").await;

    let begun: Vec<_> = world
        .log
        .bodies()
        .iter()
        .map(|body| (body.scheduled.strftime("%H").to_string(), body.attempt))
        .collect();
    let of = |hour: &str| begun.iter().filter(|(tick, _)| tick == hour).count();
    // The second attempt ends at twenty past; the tick of that hour is too late then.
    assert_eq!((of("01"), of("02"), of("03")), (2, 0, 2), "{begun:?}");
}

#[tokio::test(start_paused = true)]
async fn pauses_between_attempts_double_up_to_the_longest_on_every_machine() {
    let world = World::new();
    let jobs = |by| [failing(&world, by, secs(1)).attempts(5).backoff(secs(10), secs(25)).unwrap()];
    let _machines = ["a", "b", "c"].map(|name| world.start(name, jobs(name)));

    world.until("2026-11-21T02:00:00Z").await;

    let bodies = world.log.bodies();
    let pauses: Vec<_> = bodies
        .windows(2)
        .map(|pair| pair[1].began.since(pair[0].ended.unwrap()).as_secs())
        .collect();
    assert_eq!(pauses.len(), 4, "{bodies:?}");
    for (pause, expected) in pauses.iter().zip([10, 20, 25, 25]) {
        assert!((expected..expected + 3).contains(pause), "{pauses:?}: a poll late at most");
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_are_one_second_doubling_by_default() {
    let world = World::new();
    let _machine = world.start("a", [failing(&world, "a", secs(1)).attempts(4)]);

    world.until("2026-11-21T02:00:00Z").await;

    let bodies = world.log.bodies();
    let pauses: Vec<_> = bodies
        .windows(2)
        .map(|pair| pair[1].began.since(pair[0].ended.unwrap()).as_secs())
        .collect();
    assert!(pauses.iter().zip([1, 2, 4]).all(|(pause, least)| (least..least + 3).contains(pause)));
    assert_eq!(pauses.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn machine_that_dies_late_in_its_attempt_is_followed_by_another() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(90))).on(daily()).attempts(2);
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    world.until("2026-11-21T01:00:40Z").await;
    let (dies, lives) = if world.log.bodies()[0].by == "a" { (a, b) } else { (b, a) };
    dies.crash();

    world.until("2026-11-21T01:10:00Z").await;

    let attempts: Vec<_> = world.log.bodies().iter().map(|body| body.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    assert!(world.log.bodies()[1].is_complete);
    let endings: Vec<_> =
        lives.handle.history("job").await.unwrap().iter().map(|run| run.ending).collect();
    assert_eq!(endings, [Ending::Finished, Ending::Died]);
    assert_eq!(lives.told.counts()["died"], 1);
}

#[test]
fn backoff_out_of_range_is_refused() {
    let job = || Job::new(key("job"), |_job| async { Ok(()) });

    assert!(job().backoff(secs(2), secs(1)).is_err());
    assert!(job().backoff(secs(1), secs(8 * 86_400)).is_err());
    assert!(job().backoff(secs(0), secs(0)).is_ok());
}

/// A held key is asked for again at the locker's poll interval: three or four times a minute.
#[tokio::test(start_paused = true)]
async fn ttl_of_a_job_keeps_the_lockers_other_options() {
    let world = World::new();
    let machine = world.start("other", []);
    let way = machine.way.clone();
    let options = LeaseOptions::default().with_poll_interval(secs(20)).unwrap();
    let locker = Locker::new(way.clone()).with_options(options);
    let job =
        Job::new(key("job"), world.log.body("a", secs(1))).on(Schedule::every(secs(60)).unwrap());
    let job = job.at_most(secs(10)).unwrap();
    let held = Locker::new(world.store.clone());
    let _lease = held.obtain(&key("job")).await.unwrap().lease().unwrap();
    let clock = std::sync::Arc::<lease_scheduler::SkewedWallClock>::clone(&machine.wall);
    let scheduler =
        Scheduler::builder(locker, way.clone()).with_wall_clock(clock).with_job(job).build();
    let running = tokio::spawn(scheduler.unwrap().run());
    world.until("2026-11-21T00:00:59Z").await;
    let before = way.calls(Call::Obtain);

    world.until("2026-11-21T00:01:59Z").await;

    let asked = way.calls(Call::Obtain) - before;
    assert!((1..=4).contains(&asked), "asked {asked} times in a minute");
    running.abort();
}
