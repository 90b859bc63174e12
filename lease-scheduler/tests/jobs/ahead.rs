//! A clock that was ahead, and the mark that it leaves.

use jiff::SignedDuration;
use lease_core::{LeaseTable, Locker};
use lease_scheduler::{Job, MarkReset, Schedule};
use tokio::time::sleep;

use crate::warnings::Warnings;
use crate::world::{World, at, key, secs};

fn hourly() -> Schedule {
    Schedule::cron("0 * * * *", "UTC").unwrap()
}

#[tokio::test(start_paused = true)]
async fn mark_ahead_is_warned_of_each_hour_and_can_be_reset() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(hourly());
    world.until("2026-11-21T00:58:00Z").await;
    let ahead = world.start_ahead("ahead", SignedDuration::from_hours(23), [job("ahead")]);
    world.until("2026-11-21T01:03:00Z").await;
    ahead.stop().await;
    assert_eq!(world.log.count(), 1);
    assert_eq!(warnings.lines(), [""; 0], "by its own clock nothing is ahead");

    let (right, other) =
        (world.start("right", [job("right")]), world.start("other", [job("other")]));
    sleep(secs(61)).await;
    let lines = warnings.lines();
    assert_eq!(lines.len(), 2, "one for each machine: {lines:?}");
    for field in
        ["job=job", "mark=2026-11-22T00:00:00Z", "a tick ahead of this clock", "reset_mark"]
    {
        assert!(lines[0].contains(field), "{field}: {lines:?}");
    }
    world.until("2026-11-21T05:30:00Z").await;
    assert_eq!(world.log.count(), 1, "nobody runs anything");
    assert_eq!(warnings.lines().len(), 10, "each hour");

    let reset = right.handle.reset_mark("job").await.unwrap();

    assert!(
        matches!(reset, MarkReset::Reset(mark) if mark == at("2026-11-22T00:00:00Z")),
        "{reset:?}"
    );
    world.until("2026-11-21T07:30:00Z").await;
    let ticks: Vec<_> = world.log.ticks().into_keys().collect();
    assert_eq!(ticks[..2], [at("2026-11-21T06:00:00Z"), at("2026-11-21T07:00:00Z")]);
    assert_eq!(warnings.lines().len(), 10, "no longer");
    // The machine that did not reset it has noticed, too.
    right.stop().await;
    world.until("2026-11-21T08:30:00Z").await;
    assert_eq!(world.log.ticks().len(), 4);
    assert!(other.told.words().contains(&"finished".to_owned()));
}

/// By the poll interval of the locker, a second.
#[tokio::test(start_paused = true)]
async fn mark_a_few_seconds_ahead_is_warned_of() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(hourly());
    let _right = world.start("right", [job("right")]);
    let _ahead = world.start_ahead("ahead", SignedDuration::from_secs(5), [job("ahead")]);
    world.until("2026-11-21T00:59:56Z").await;

    let late = world.start("late", [job("late")]);
    world.until("2026-11-21T01:30:00Z").await;

    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "the others look again after their next tick: {lines:?}");
    assert!(lines[0].contains("a tick ahead of this clock"), "{lines:?}");
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn mark_that_is_not_ahead_and_one_that_is_held_are_not_reset() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(600))).on(hourly());
    let machine = world.start("a", [job("a")]);
    world.until("2026-11-21T01:05:00Z").await;
    let before = world.store.read(&key("job")).await.unwrap().unwrap().attributes;

    let reset = machine.handle.reset_mark("job").await.unwrap();
    assert!(
        matches!(&reset, MarkReset::Held(holder) if holder.lessee.as_str() == "a"),
        "{reset:?}"
    );
    assert_eq!(world.store.read(&key("job")).await.unwrap().unwrap().attributes, before);

    world.until("2026-11-21T01:30:00Z").await;
    let reset = machine.handle.reset_mark("job").await.unwrap();
    assert!(matches!(reset, MarkReset::NotAhead), "{reset:?}");
    assert!(machine.handle.reset_mark("other").await.is_err());
    world.until("2026-11-21T02:30:00Z").await;
    assert_eq!(world.log.count(), 2);
}

/// As before there was a way to reset a mark.
#[tokio::test(start_paused = true)]
async fn deleted_record_forgets_a_mark_that_is_ahead() {
    let world = World::new();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(hourly());
    let ahead = world.start_ahead("ahead", SignedDuration::from_hours(72), [job("ahead")]);
    world.until("2026-11-21T01:30:00Z").await;
    ahead.stop().await;
    let locker = Locker::new(world.store.clone());
    let lease = locker.obtain(&key("job")).await.unwrap().lease().unwrap();
    let _written = world.store.delete(lease.grant()).await.unwrap();
    drop(lease);

    let _right = world.start("right", [job("right")]);
    world.until("2026-11-21T02:30:00Z").await;

    assert_eq!(world.log.count(), 2);
}
