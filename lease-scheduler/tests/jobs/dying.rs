//! Machines that die in a run: the next to see the lease expire writes it down.

use lease_core::Locker;
use lease_scheduler::{Ending, Job, Schedule, Scheduler};
use tokio::time::sleep;

use crate::warnings::Warnings;
use crate::world::{TTL, World, at, key, secs};

fn daily() -> Schedule {
    Schedule::cron("0 1 * * *", "UTC").unwrap()
}

fn lines_of(warnings: &Warnings) -> Vec<String> {
    let mut lines = warnings.lines();
    lines.retain(|line| line.contains("job died"));
    lines
}

#[tokio::test(start_paused = true)]
async fn run_whose_machine_died_is_reported_by_one_of_the_others() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(3600))).on(daily());
    let mut machines: Vec<_> = ["a", "b", "c"].map(|name| world.start(name, [job(name)])).into();
    world.until("2026-11-21T01:20:00Z").await;
    let by = world.log.bodies()[0].by.clone();
    let place = machines.iter().position(|machine| machine.told.words().is_empty()).unwrap();
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
        machines.iter().filter_map(|machine| machine.told.counts().remove("died")).collect();
    assert_eq!(died, [1], "one machine is told");
    let history = machines[0].handle.history("job").await.unwrap();
    assert_eq!((history.len(), history[0].ending, history[0].ended), (1, Ending::Died, None));
    assert!(world.is_free("job").await);
    assert_eq!(world.log.count(), 1, "it is not begun again");
}

#[tokio::test(start_paused = true)]
async fn process_that_starts_again_reports_its_own_death() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(3600))).on(daily());
    let machine = world.start("a", [job("a")]);
    world.until("2026-11-21T01:20:00Z").await;
    machine.crash();
    sleep(secs(5)).await;

    let again = world.start("a", [job("a")]);
    sleep(TTL * 2).await;

    assert_eq!(lines_of(&warnings).len(), 1);
    assert_eq!(again.told.counts()["died"], 1);
}

/// Where no scheduler is left that could write it down.
#[tokio::test(start_paused = true)]
async fn history_tells_a_run_that_died_from_one_that_runs() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(3600))).on(daily());
    let machine = world.start("a", [job("a")]);
    let operator = Scheduler::builder(Locker::new(world.store.clone()), world.store.clone());
    let operator = operator.with_job(job("operator")).build().unwrap();
    let history = async || operator.handle().history("job").await.unwrap();

    world.until("2026-11-21T01:20:00Z").await;
    assert_eq!(history().await[0].ending, Ending::Running);
    machine.crash();
    assert_eq!(history().await[0].ending, Ending::Running, "its lease is still held");
    sleep(TTL).await;

    let runs = history().await;
    assert_eq!((runs.len(), runs[0].ending), (1, Ending::Died));
    assert_eq!(runs[0].scheduled, at("2026-11-21T01:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn run_that_ended_is_not_reported_as_dead() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| {
        let job = Job::new(key("job"), world.log.body(by, secs(50)));
        job.on(Schedule::cron("* * * * *", "UTC").unwrap())
    };
    let machines = ["a", "b", "c"].map(|name| world.start(name, [job(name)]));

    world.until("2026-11-21T03:00:30Z").await;

    assert_eq!(warnings.lines(), [""; 0]);
    assert!(machines.iter().all(|machine| !machine.told.counts().contains_key("died")));
    assert_eq!(world.log.count(), 180);
}
