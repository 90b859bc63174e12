//! Two fleets whose clocks are a minute apart, and the minutes of a hundred hours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::conformance::Faulty;
use lease_scheduler::{Job, Schedule};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::forgetful::Forgetful;
use crate::world::{Machine, World, key, secs};

const HOURS: u64 = 100;

/// Half a minute ahead, and half a minute behind.
const SKEWS: [(&str, i64); 4] = [("fast-1", 30), ("fast-2", 30), ("slow-1", -30), ("slow-2", -30)];

fn job(world: &World, by: &str) -> Job {
    // Up to 25 s, as the tick has it: the fleets meet each other at work.
    let length = |tick: Timestamp| secs(tick.as_second().unsigned_abs() / 60 * 7 % 26);
    Job::new(key("job"), world.log.body_of_lengths(by, length)).on(Schedule::cron(
        "* * * * *",
        "UTC",
    )
    .unwrap())
}

fn start(world: &World, (name, ahead): (&str, i64)) -> Machine {
    world.start_ahead(name, SignedDuration::from_secs(ahead), [job(world, name)])
}

/// How many ticks were begun twice, and how many never, of those that every clock has passed.
fn judge(world: &World, from: Timestamp) -> (usize, usize, usize) {
    let ticks = world.log.ticks();
    let twice = ticks.values().filter(|runs| **runs > 1).count();
    let passed = world.now() - SignedDuration::from_secs(90);
    let minute = SignedDuration::from_mins(1);
    let (mut tick, mut all, mut never) = (from + minute * 2, 0, 0);
    while tick < passed {
        all += 1;
        never += usize::from(!ticks.contains_key(&tick));
        tick += minute;
    }
    (all, twice, never)
}

fn counts(machines: &[Machine]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (kind, count) in machines.iter().flat_map(|machine| machine.told.counts()) {
        *counts.entry(kind).or_default() += count;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn fleets_a_minute_apart_run_each_minute_of_a_hundred_hours_once() {
    let world = World::new();
    let from = world.now();
    let machines = SKEWS.map(|skew| start(&world, skew));

    sleep(secs(HOURS * 3600)).await;

    let (all, twice, never) = judge(&world, from);
    println!("{HOURS} h, {all} ticks: {twice} twice, {never} never; {:?}", counts(&machines));
    assert_eq!((twice, never, world.log.overlaps()), (0, 0, 0));
    assert!(all >= 5995, "{all}");
}

/// Each of them alone for a while: nobody skips a tick because its clock is behind.
#[tokio::test(start_paused = true)]
async fn fleets_a_minute_apart_take_turns_and_miss_no_minute() {
    let world = World::new();
    let from = world.now();
    let [fast, slow] = [SKEWS[0], SKEWS[2]];
    let mut random = StdRng::seed_from_u64(7);
    let mut hours = 0;

    while hours < HOURS {
        let (a, b) = (start(&world, fast), start(&world, slow));
        sleep(secs(3600 + random.random_range(0..3600))).await;
        // Whoever stays is there before the other has gone, as in a rolling deployment.
        let (leaves, stays) = if hours % 4 == 0 { (a, b) } else { (b, a) };
        leaves.stop().await;
        sleep(secs(3600 + random.random_range(0..3600))).await;
        stays.handle.stop();
        hours += 3;
    }

    let (all, twice, never) = judge(&world, from);
    println!("taking turns, {all} ticks: {twice} twice, {never} never");
    assert_eq!((twice, never), (0, 0));
    assert!(all > 5000, "{all}");
}

#[tokio::test(start_paused = true)]
async fn fleets_a_minute_apart_whose_machines_crash_run_no_minute_twice() {
    let world = World::new();
    let from = world.now();
    let mut random = StdRng::seed_from_u64(1);
    let mut machines: Vec<_> = SKEWS.map(|skew| start(&world, skew)).into();
    let mut crashes = 0;

    while world.now().duration_since(from).as_hours() < 100 {
        // Every other one a moment after a full minute: there most of the awaits are.
        let millis = if random.random() {
            let into_minute = u64::try_from(world.now().as_millisecond() % 30_000).unwrap();
            30_000 * random.random_range(1..60) - into_minute + random.random_range(0..40)
        } else {
            random.random_range(0..1_800_000)
        };
        sleep(Duration::from_millis(millis)).await;
        let place = random.random_range(0..machines.len());
        machines.remove(place).crash();
        crashes += 1;
        sleep(Duration::from_millis(random.random_range(0..60_000))).await;
        machines.insert(place, start(&world, SKEWS[place]));
    }

    let (all, twice, never) = judge(&world, from);
    println!("{crashes} crashes, {all} ticks: {twice} twice, {never} never");
    assert_eq!((twice, world.log.overlaps()), (0, 0));
    assert!(never * 20 < all, "{never} of {all}: ticks are lost by crashes alone");
    assert!(crashes > 300, "{crashes}");
}

/// The control: with leases, but without the marks.
#[tokio::test(start_paused = true)]
async fn without_the_marks_ticks_are_run_twice() {
    let world = World::new();
    let from = world.now();
    let machines = SKEWS.map(|(name, ahead)| {
        let way = Faulty::new(world.store.clone()).with_latency(Duration::from_millis(2));
        let ahead = SignedDuration::from_secs(ahead);
        let table = Forgetful(Arc::new(way.clone()));
        world.start_on(name, ahead, way, table, [job(&world, name)])
    });

    sleep(secs(HOURS * 360)).await;

    let (all, twice, never) = judge(&world, from);
    println!("without marks, {all} ticks: {twice} twice, {never} never; {:?}", counts(&machines));
    assert!(twice > all / 2, "{twice} of {all}");
}
