//! Missed ticks: each is logged, reported to the metrics and written to the history, once per
//! fleet.

use lease_core::Locker;
use lease_scheduler::{Ending, Job, Misfire, Schedule, Switch, TableSwitch};
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;

use crate::harness::{Machine, SchedulerHarness, at, key, secs};

fn hourly() -> Schedule {
    Schedule::cron("0 * * * *", "UTC").unwrap()
}

fn lines_of(warnings: &Warnings) -> Vec<String> {
    let mut lines = warnings.lines();
    lines.retain(|line| line.contains("job missed ticks"));
    lines
}

fn missed(machines: &[&Machine]) -> usize {
    machines.iter().flat_map(|machine| machine.reports.missed()).map(|ticks| ticks.count).sum()
}

#[tokio::test(start_paused = true)]
async fn ticks_missed_by_whole_fleet_are_reported_once() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(hourly());
    let first = harness.start("first", [job("first")]);
    sleep(secs(5)).await;
    first.stop().await;
    harness.until("2026-11-21T03:30:00Z").await;

    let machines = ["a", "b", "c"].map(|name| harness.start(name, [job(name)]));
    harness.until("2026-11-21T03:45:00Z").await;

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
        "no machine started 3 ticks, 2026-11-21T01:00:00Z to 2026-11-21T03:00:00Z"
    );

    // A machine that starts later finds the missed ticks in the history.
    let late = harness.start("late", [job("late")]);
    harness.until("2026-11-21T04:30:00Z").await;
    assert_eq!(lines_of(&warnings).len(), 1);
    assert_eq!(missed(&[&late]), 0);
    assert_eq!(harness.log.count(), 1);
}

/// A body runs for 330 s, and a tick is due every 120 s, so two of three ticks are missed.
#[tokio::test(start_paused = true)]
async fn ticks_missed_during_long_runs_are_all_reported_once() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| {
        Job::new(key("job"), harness.log.body(by, secs(330)))
            .on(Schedule::every(secs(120)).unwrap())
    };
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));

    harness.until("2026-11-21T02:00:30Z").await;

    let begun = harness.log.ticks();
    let last = *begun.keys().last().unwrap();
    let until_last = last.duration_since(at("2026-11-21T00:00:00Z")).as_secs() / 120;
    let reports: Vec<_> = [&a, &b].iter().flat_map(|machine| machine.reports.missed()).collect();
    let reported: usize =
        reports.iter().filter(|ticks| ticks.last < last).map(|ticks| ticks.count).sum();
    assert_eq!(begun.len() + reported, usize::try_from(until_last).unwrap(), "{reports:?}");
    assert!(reported > 20, "{reported}");
    assert_eq!(lines_of(&warnings).len(), reports.len());
    assert!(reports.iter().all(|ticks| !begun.contains_key(&ticks.last)), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn ticks_before_caught_up_tick_are_reported() {
    let harness = SchedulerHarness::new();
    let job = |by| {
        let job = Job::new(key("job"), harness.log.body(by, secs(1))).on(hourly());
        job.misfire(Misfire::CatchUpOnce).unwrap()
    };
    let first = harness.start("first", [job("first")]);
    harness.until("2026-11-21T00:30:00Z").await;
    first.stop().await;
    harness.until("2026-11-21T03:30:00Z").await;

    let machine = harness.start("a", [job("a")]);
    sleep(secs(60)).await;

    assert_eq!(machine.reports.texts(), ["missed: 2", "finished"]);
    let history = machine.handle.history("job").await.unwrap();
    let endings: Vec<_> = history.iter().map(|run| (run.scheduled, run.ending)).collect();
    let (two, three) = (at("2026-11-21T02:00:00Z"), at("2026-11-21T03:00:00Z"));
    assert_eq!(endings, [(three, Ending::Finished), (two, Ending::Missed)]);
}

#[tokio::test(start_paused = true)]
async fn tick_missed_in_table_outage_is_reported_afterwards() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("job"), harness.log.body("a", secs(1))).on(hourly());
    let machine = harness.start("a", [job]);
    harness.until("2026-11-21T00:59:00Z").await;
    machine.connection.choose(|_| Some(lease_core::conformance::Fault::Fail));
    harness.until("2026-11-21T01:05:00Z").await;
    assert_eq!(machine.reports.missed(), []);

    machine.connection.heal();
    sleep(secs(60)).await;

    assert_eq!(machine.reports.texts(), ["skipped: lock store did not answer", "missed: 1"]);
}

#[tokio::test(start_paused = true)]
async fn ticks_of_switched_off_job_are_not_missed() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let switch = || {
        TableSwitch::new(key("switch"), &Locker::new(harness.store.clone()), harness.store.clone())
    };
    let job =
        |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(hourly()).with_switch(switch());
    let (a, b) = (harness.start("a", [job("a")]), harness.start("b", [job("b")]));
    harness.until("2026-11-21T05:30:00Z").await;
    a.stop().await;
    switch().turn_on().await.unwrap();

    let c = harness.start("c", [job("c")]);
    harness.until("2026-11-21T06:30:00Z").await;

    assert_eq!((harness.log.count(), missed(&[&b, &c])), (1, 0));
    assert_eq!(lines_of(&warnings), [""; 0]);
    let elsewhere = Job::new(key("elsewhere"), harness.log.body("d", secs(1)));
    let d = harness.start("d", [elsewhere.on(hourly()).only_if(|| false)]);
    harness.until("2026-11-21T08:30:00Z").await;
    assert_eq!(missed(&[&d]), 0);
}

/// Ticks of the new schedule that precede the change do not count as missed.
#[tokio::test(start_paused = true)]
async fn changed_schedule_ignores_earlier_ticks() {
    let harness = SchedulerHarness::new();
    let job = |by, schedule| {
        let job = Job::new(key("job"), harness.log.body(by, secs(1))).on(schedule);
        job.misfire(Misfire::CatchUpOnce).unwrap()
    };
    let daily = Schedule::cron("0 0 * * *", "UTC").unwrap();
    let old = harness.start("old", [job("old", daily.clone())]);
    harness.until("2026-11-22T10:30:00Z").await;
    old.stop().await;
    assert_eq!(harness.log.count(), 1);

    let new = harness.start("new", [job("new", hourly())]);
    harness.until("2026-11-22T11:30:00Z").await;

    let ticks: Vec<_> = harness.log.ticks().into_keys().collect();
    assert_eq!(ticks, [at("2026-11-22T00:00:00Z"), at("2026-11-22T11:00:00Z")]);
    assert_eq!(new.reports.texts(), ["finished"]);

    // Earlier ticks do not count either if a machine stops before the first tick of the new
    // schedule.
    new.stop().await;
    let again = harness.start("again", [job("again", daily)]);
    sleep(secs(5)).await;
    again.stop().await;
    let once_more =
        harness.start("more", [job("more", Schedule::cron("0 0 * * *", "UTC").unwrap())]);
    harness.until("2026-11-23T00:30:00Z").await;
    assert_eq!(once_more.reports.texts(), ["finished"]);
    assert_eq!(harness.log.count(), 3);
}
