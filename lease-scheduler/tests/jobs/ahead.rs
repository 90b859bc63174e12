//! The mark of a machine whose clock is ahead.

use jiff::SignedDuration;
use lease_core::Locker;
use lease_core::store::LeaseTable;
use lease_scheduler::{Job, MarkReset, Schedule};
use lease_test_servers::warnings::Warnings;
use tokio::time::sleep;

use crate::harness::{SchedulerHarness, at, key, secs};

fn hourly() -> Schedule {
    Schedule::cron("0 * * * *", "UTC").unwrap()
}

#[tokio::test(start_paused = true)]
async fn mark_ahead_is_logged_each_hour_and_can_be_reset() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(hourly());
    harness.until("2026-11-21T00:58:00Z").await;
    let ahead = harness.start_ahead("ahead", SignedDuration::from_hours(23), [job("ahead")]);
    harness.until("2026-11-21T01:03:00Z").await;
    ahead.stop().await;
    assert_eq!(harness.log.count(), 1);
    assert_eq!(warnings.lines(), [""; 0], "the machine ahead warns of no mark");

    let (right, other) =
        (harness.start("right", [job("right")]), harness.start("other", [job("other")]));
    sleep(secs(61)).await;
    let lines = warnings.lines();
    assert_eq!(lines.len(), 2, "one warning for each machine: {lines:?}");
    for field in
        ["job=job", "mark=2026-11-22T00:00:00Z", "a tick ahead of this clock", "reset_mark"]
    {
        assert!(lines[0].contains(field), "{field}: {lines:?}");
    }
    harness.until("2026-11-21T05:30:00Z").await;
    assert_eq!(harness.log.count(), 1, "no machine runs the job");
    let reported = right.reports.ahead().as_secs();
    let ahead = (harness.now().duration_since(at("2026-11-22T00:00:00Z"))).as_secs().unsigned_abs();
    assert!((ahead..=ahead + 61).contains(&reported), "{reported} s of {ahead} s");
    assert_eq!(warnings.lines().len(), 10, "each hour");

    let reset = right.handle.reset_mark("job").await.unwrap();

    assert!(
        matches!(reset, MarkReset::Reset(mark) if mark == at("2026-11-22T00:00:00Z")),
        "{reset:?}"
    );
    harness.until("2026-11-21T07:30:00Z").await;
    let ticks: Vec<_> = harness.log.ticks().into_keys().collect();
    assert_eq!(ticks[..2], [at("2026-11-21T06:00:00Z"), at("2026-11-21T07:00:00Z")]);
    assert_eq!(warnings.lines().len(), 10, "no further warning");
    assert_eq!((right.reports.ahead(), other.reports.ahead()), (secs(0), secs(0)));
    // The other machine has noticed the reset, too.
    right.stop().await;
    harness.until("2026-11-21T08:30:00Z").await;
    assert_eq!(harness.log.ticks().len(), 4);
    assert!(other.reports.texts().contains(&"finished".to_owned()));
}

/// Without a warning, a mark may be ahead by at most the locker's poll interval, a second.
#[tokio::test(start_paused = true)]
async fn mark_a_few_seconds_ahead_is_logged() {
    let (warnings, _listening) = Warnings::listen();
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(hourly());
    let _right = harness.start("right", [job("right")]);
    let _ahead = harness.start_ahead("ahead", SignedDuration::from_secs(5), [job("ahead")]);
    harness.until("2026-11-21T00:59:56Z").await;

    let late = harness.start("late", [job("late")]);
    harness.until("2026-11-21T01:30:00Z").await;

    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "the others read the mark after their next tick: {lines:?}");
    assert!(lines[0].contains("a tick ahead of this clock"), "{lines:?}");
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn mark_not_ahead_or_held_is_not_reset() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(600))).on(hourly());
    let machine = harness.start("a", [job("a")]);
    harness.until("2026-11-21T01:05:00Z").await;
    let before = harness.store.read(&key("job")).await.unwrap().unwrap().attributes;

    let reset = machine.handle.reset_mark("job").await.unwrap();
    assert!(
        matches!(&reset, MarkReset::Held(holder) if holder.lessee.as_str() == "a"),
        "{reset:?}"
    );
    assert_eq!(harness.store.read(&key("job")).await.unwrap().unwrap().attributes, before);

    harness.until("2026-11-21T01:30:00Z").await;
    let reset = machine.handle.reset_mark("job").await.unwrap();
    assert!(matches!(reset, MarkReset::NotAhead), "{reset:?}");
    assert!(machine.handle.reset_mark("other").await.is_err());
    harness.until("2026-11-21T02:30:00Z").await;
    assert_eq!(harness.log.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn deleted_record_removes_mark_ahead() {
    let harness = SchedulerHarness::new();
    let job = |by| Job::new(key("job"), harness.log.body(by, secs(1))).on(hourly());
    let ahead = harness.start_ahead("ahead", SignedDuration::from_hours(72), [job("ahead")]);
    harness.until("2026-11-21T01:30:00Z").await;
    ahead.stop().await;
    let locker = Locker::new(harness.store.clone());
    let lease = locker.obtain(&key("job")).await.unwrap().into_lease().unwrap();
    let _written = harness.store.delete(lease.grant()).await.unwrap();
    drop(lease);

    let _right = harness.start("right", [job("right")]);
    harness.until("2026-11-21T02:30:00Z").await;

    assert_eq!(harness.log.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn schedule_change_by_clock_ahead_drops_no_tick() {
    let harness = SchedulerHarness::new();
    let job = |by, schedule| Job::new(key("job"), harness.log.body(by, secs(1))).on(schedule);
    let half_hourly = Schedule::cron("0,30 * * * *", "UTC").unwrap();
    let old = harness.start("old", [job("old", hourly())]);
    harness.until("2026-11-21T01:59:59.5Z").await;

    // By its own clock, the new machine starts after the tick of 2:00.
    let ahead = SignedDuration::from_millis(800);
    let new = harness.start_ahead("new", ahead, [job("new", half_hourly)]);
    harness.until("2026-11-21T02:40:00Z").await;

    let hours = ["2026-11-21T01:00:00Z", "2026-11-21T02:00:00Z", "2026-11-21T02:30:00Z"];
    let ticks: Vec<_> = harness.log.ticks().into_iter().collect();
    assert_eq!(ticks, hours.map(|hour| (at(hour), 1)), "{old:?}, {new:?}");
}

#[tokio::test(start_paused = true)]
async fn tick_before_schedule_change_is_not_reported_as_run() {
    let harness = SchedulerHarness::new();
    let job = |by, schedule| Job::new(key("job"), harness.log.body(by, secs(1))).on(schedule);
    let half_hourly = Schedule::cron("0,30 * * * *", "UTC").unwrap();
    let old = harness.start("old", [job("old", hourly())]);
    harness.until("2026-11-21T01:59:30Z").await;

    let _new = harness.start_ahead("new", SignedDuration::from_mins(1), [job("new", half_hourly)]);
    harness.until("2026-11-21T02:20:00Z").await;

    assert_eq!(harness.log.count(), 1);
    let texts = old.reports.texts();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts[1].contains("skipped: ticks up to 2026-11-21T02:00:29Z do not count"),
        "{texts:?}"
    );
}
