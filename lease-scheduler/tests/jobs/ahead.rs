//! A clock that was far ahead, and the mark that it leaves.

use jiff::SignedDuration;
use lease_core::{LeaseTable, Locker};
use lease_scheduler::{Job, Schedule};

use crate::warnings::Warnings;
use crate::world::{World, key, secs};

#[tokio::test(start_paused = true)]
async fn a_mark_far_ahead_is_warned_of_once_and_skips_all_ticks_until_its_record_is_deleted() {
    let (warnings, _listening) = Warnings::listen();
    let world = World::new();
    let hourly = Schedule::cron("0 * * * *", "UTC").unwrap();
    let job = |by| Job::new(key("job"), world.log.body(by, secs(1))).on(hourly.clone());
    let ahead = world.start_ahead("ahead", SignedDuration::from_hours(72), [job("ahead")]);
    world.until("2026-11-21T01:30:00Z").await;
    ahead.stop().await;
    assert_eq!(world.log.count(), 1);
    assert_eq!(warnings.lines(), [""; 0], "by its own clock nothing is ahead");

    let right = world.start("right", [job("right")]);
    world.until("2026-11-22T01:30:00Z").await;
    right.stop().await;

    assert_eq!(world.log.count(), 1, "nobody runs anything");
    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("job=job") && lines[0].contains("2026-11-24T01:00:00Z"), "{lines:?}");

    let locker = Locker::new(world.store.clone());
    let lease = locker.obtain(&key("job")).await.unwrap().lease().unwrap();
    let _written = world.store.delete(lease.grant()).await.unwrap();
    drop(lease);
    let _right = world.start("right", [job("right")]);
    world.until("2026-11-22T02:30:00Z").await;
    assert_eq!(world.log.count(), 2);
}
