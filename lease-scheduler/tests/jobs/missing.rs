//! Missed ticks: each is warned of, told to the metrics, and in the history, once for the fleet.

use lease_core::Locker;
use lease_scheduler::{Ending, Job, Missed, Schedule, Switch, TableSwitch};
use tokio::time::sleep;

use crate::warnings::Warnings;
use crate::world::{Machine, World, at, key, secs};

fn hourly() -> Schedule {
    Schedule::cron("0 * * * *", "UTC").unwrap()
}

fn lines_of(warnings: &Warnings) -> Vec<String> {
    let mut lines = warnings.lines();
    lines.retain(|line| line.contains("job missed ticks"));
    lines
}

fn missed(machines: &[&Machine]) -> usize {
    machines.iter().flat_map(|machine| machine.told.missed()).map(|ticks| ticks.count).sum()
}

#[tokio::test(start_paused = true)]
async fn ticks_missed_by_the_whole_fleet_are_reported_once() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(hourly());
    let first = world.start("first", [job("first")]);
    sleep(secs(5)).await;
    first.stop().await;
    world.until("2026-11-21T03:30:00Z").await;

    let machines = ["a", "b", "c"].map(|name| world.start(name, [job(name)]));
    world.until("2026-11-21T03:45:00Z").await;

    let lines = lines_of(&warnings);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for field in ["first=2026-11-21T01:00:00Z", "last=2026-11-21T03:00:00Z", "count=3", "job=job"] {
        assert!(lines[0].contains(field), "{field}: {lines:?}");
    }
    assert_eq!(missed(&machines.each_ref()), 3);
    let history = machines[0].handle.history("job").await.unwrap();
    assert_eq!(history.len(), 1, "{history:?}");
    assert_eq!((history[0].ending, history[0].attempt), (Ending::Missed, 0));
    assert_eq!(history[0].scheduled, at("2026-11-21T03:00:00Z"));
    assert_eq!(
        history[0].note,
        "nobody began 3 ticks, 2026-11-21T01:00:00Z to 2026-11-21T03:00:00Z"
    );

    // Whoever starts later finds them in the history.
    let late = world.start("late", [job("late")]);
    world.until("2026-11-21T04:30:00Z").await;
    assert_eq!(lines_of(&warnings).len(), 1);
    assert_eq!(missed(&[&late]), 0);
    assert_eq!(world.log.count(), 1);
}

/// The ticks of 2:00, 6:00, … begin late, and those between them never.
#[tokio::test(start_paused = true)]
async fn ticks_missed_during_long_runs_are_all_reported_once() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| {
        Job::new(key("job"), world.log.body(by, secs(330))).on(Schedule::every(secs(120)).unwrap())
    };
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));

    world.until("2026-11-21T02:00:30Z").await;

    let begun = world.log.ticks();
    let last = *begun.keys().last().unwrap();
    let until_last = last.duration_since(at("2026-11-21T00:00:00Z")).as_secs() / 120;
    let told: Vec<_> = [&a, &b].iter().flat_map(|machine| machine.told.missed()).collect();
    let reported: usize =
        told.iter().filter(|ticks| ticks.last < last).map(|ticks| ticks.count).sum();
    assert_eq!(begun.len() + reported, usize::try_from(until_last).unwrap(), "{told:?}");
    assert!(reported > 20, "{reported}");
    assert_eq!(lines_of(&warnings).len(), told.len());
    assert!(told.iter().all(|ticks| !begun.contains_key(&ticks.last)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn ticks_before_one_that_is_caught_up_are_reported() {
    let world = World::new();
    let job = |by| {
        let job = Job::new(key("job"), world.log.body(by, secs(1))).on(hourly());
        job.missed(Missed::CatchUpOnce).unwrap()
    };
    let first = world.start("first", [job("first")]);
    world.until("2026-11-21T00:30:00Z").await;
    first.stop().await;
    world.until("2026-11-21T03:30:00Z").await;

    let machine = world.start("a", [job("a")]);
    sleep(secs(60)).await;

    assert_eq!(machine.told.words(), ["missed: 2", "finished"]);
    let history = machine.handle.history("job").await.unwrap();
    let endings: Vec<_> = history.iter().map(|run| (run.scheduled, run.ending)).collect();
    let (two, three) = (at("2026-11-21T02:00:00Z"), at("2026-11-21T03:00:00Z"));
    assert_eq!(endings, [(three, Ending::Finished), (two, Ending::Missed)]);
}

#[tokio::test(start_paused = true)]
async fn tick_missed_because_the_table_is_down_is_reported_once_it_answers() {
    let world = World::new();
    let job = Job::new(key("job"), world.log.body("a", secs(1))).on(hourly());
    let machine = world.start("a", [job]);
    world.until("2026-11-21T00:59:00Z").await;
    machine.way.choose(|_| Some(lease_core::conformance::Fault::Fail));
    world.until("2026-11-21T01:05:00Z").await;
    assert_eq!(machine.told.missed(), []);

    machine.way.heal();
    sleep(secs(60)).await;

    assert_eq!(machine.told.words(), ["skipped: lock store did not answer", "missed: 1"]);
}

#[tokio::test(start_paused = true)]
async fn ticks_while_a_job_is_switched_off_are_not_missed() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let switch =
        || TableSwitch::new(key("switch"), &Locker::new(world.store.clone()), world.store.clone());
    let job =
        |by| Job::new(key("job"), world.log.body(by, secs(1))).on(hourly()).with_switch(switch());
    let (a, b) = (world.start("a", [job("a")]), world.start("b", [job("b")]));
    world.until("2026-11-21T05:30:00Z").await;
    a.stop().await;
    switch().turn_on().await.unwrap();

    let c = world.start("c", [job("c")]);
    world.until("2026-11-21T06:30:00Z").await;

    assert_eq!((world.log.count(), missed(&[&b, &c])), (1, 0));
    assert_eq!(lines_of(&warnings), [""; 0]);
    // A machine whose condition does not hold has no part in a job, and reports nothing.
    let elsewhere = Job::new(key("elsewhere"), world.log.body("d", secs(1)));
    let d = world.start("d", [elsewhere.on(hourly()).only_if(|| false)]);
    world.until("2026-11-21T08:30:00Z").await;
    assert_eq!(missed(&[&d]), 0);
}

/// Ticks that only the new schedule has had before the change are no one's fault.
#[tokio::test(start_paused = true)]
async fn changed_schedule_neither_misses_nor_catches_up_ticks_of_before() {
    let world = World::new();
    let job = |by, schedule| {
        let job = Job::new(key("job"), world.log.body(by, secs(1))).on(schedule);
        job.missed(Missed::CatchUpOnce).unwrap()
    };
    let daily = Schedule::cron("0 0 * * *", "UTC").unwrap();
    let old = world.start("old", [job("old", daily.clone())]);
    world.until("2026-11-22T10:30:00Z").await;
    old.stop().await;
    assert_eq!(world.log.count(), 1);

    let new = world.start("new", [job("new", hourly())]);
    world.until("2026-11-22T11:30:00Z").await;

    let ticks: Vec<_> = world.log.ticks().into_keys().collect();
    assert_eq!(ticks, [at("2026-11-22T00:00:00Z"), at("2026-11-22T11:00:00Z")]);
    assert_eq!(new.told.words(), ["finished"]);

    // Also where the new schedule was stopped before its first tick.
    new.stop().await;
    let again = world.start("again", [job("again", daily)]);
    sleep(secs(5)).await;
    again.stop().await;
    let once_more = world.start("more", [job("more", Schedule::cron("0 0 * * *", "UTC").unwrap())]);
    world.until("2026-11-23T00:30:00Z").await;
    assert_eq!(once_more.told.words(), ["finished"]);
    assert_eq!(world.log.count(), 3);
}
