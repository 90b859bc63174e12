//! Two fleets whose clocks are a minute apart run a job each minute, for a hundred hours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::conformance::Faulty;
use lease_scheduler::{Job, Schedule};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::forgetful::{Forgetful, MARKS_OF_TICKS};
use crate::harness::{Machine, SchedulerHarness, key, secs};

const HOURS: u64 = 100;

const SKEWS: [(&str, i64); 4] = [("fast-1", 30), ("fast-2", 30), ("slow-1", -30), ("slow-2", -30)];

fn job(harness: &SchedulerHarness, by: &str) -> Job {
    // A run takes up to 25 s, depending on its tick. So without leases, runs of the fleets would
    // overlap.
    let length = |tick: Timestamp| secs(tick.as_second().unsigned_abs() / 60 * 7 % 26);
    Job::new(key("job"), harness.log.body_of_lengths(by, length)).on(Schedule::cron(
        "* * * * *",
        "UTC",
    )
    .unwrap())
}

fn start(harness: &SchedulerHarness, (name, ahead): (&str, i64)) -> Machine {
    harness.start_ahead(name, SignedDuration::from_secs(ahead), [job(harness, name)])
}

/// Looks at the ticks that every clock has passed. Returns the number of all ticks, of ticks with
/// several starts, and of ticks without a start.
fn judge(harness: &SchedulerHarness, from: Timestamp) -> (usize, usize, usize) {
    let ticks = harness.log.ticks();
    let twice = ticks.values().filter(|runs| **runs > 1).count();
    let passed = harness.now() - SignedDuration::from_secs(90);
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
    for (kind, count) in machines.iter().flat_map(|machine| machine.reports.counts()) {
        *counts.entry(kind).or_default() += count;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn fleets_a_minute_apart_run_each_tick_once() {
    let harness = SchedulerHarness::new();
    let from = harness.now();
    let machines = SKEWS.map(|skew| start(&harness, skew));

    sleep(secs(HOURS * 3600)).await;

    let (all, twice, never) = judge(&harness, from);
    println!("{HOURS} h, {all} ticks: {twice} twice, {never} never; {:?}", counts(&machines));
    assert_eq!((twice, never, harness.log.overlaps()), (0, 0, 0));
    assert!(all >= 5995, "{all}");
}

#[tokio::test(start_paused = true)]
async fn fleets_a_minute_apart_in_turn_miss_no_tick() {
    let harness = SchedulerHarness::new();
    let from = harness.now();
    let [fast, slow] = [SKEWS[0], SKEWS[2]];
    let mut random = StdRng::seed_from_u64(7);
    let mut hours = 0;

    while hours < HOURS {
        let (a, b) = (start(&harness, fast), start(&harness, slow));
        sleep(secs(3600 + random.random_range(0..3600))).await;
        // The next fleet starts before the other fleet stops, as in a rolling deployment.
        let (leaves, stays) = if hours % 4 == 0 { (a, b) } else { (b, a) };
        leaves.stop().await;
        sleep(secs(3600 + random.random_range(0..3600))).await;
        stays.handle.stop();
        hours += 3;
    }

    let (all, twice, never) = judge(&harness, from);
    println!("taking turns, {all} ticks: {twice} twice, {never} never");
    assert_eq!((twice, never), (0, 0));
    assert!(all > 5000, "{all}");
}

#[tokio::test(start_paused = true)]
async fn crashing_fleets_a_minute_apart_run_no_tick_twice() {
    let harness = SchedulerHarness::new();
    let from = harness.now();
    let mut random = StdRng::seed_from_u64(1);
    let mut machines: Vec<_> = SKEWS.map(|skew| start(&harness, skew)).into();
    let mut crashes = 0;

    while harness.now().duration_since(from).as_hours() < 100 {
        // Half of the crashes come just after a full half minute, when ticks may be due.
        let millis = if random.random() {
            let into_minute = u64::try_from(harness.now().as_millisecond() % 30_000).unwrap();
            30_000 * random.random_range(1..60) - into_minute + random.random_range(0..40)
        } else {
            random.random_range(0..1_800_000)
        };
        sleep(Duration::from_millis(millis)).await;
        let place = random.random_range(0..machines.len());
        machines.remove(place).crash();
        crashes += 1;
        sleep(Duration::from_millis(random.random_range(0..60_000))).await;
        machines.insert(place, start(&harness, SKEWS[place]));
    }

    let (all, twice, never) = judge(&harness, from);
    println!("{crashes} crashes, {all} ticks: {twice} twice, {never} never");
    assert_eq!((twice, harness.log.overlaps()), (0, 0));
    assert!(never * 20 < all, "{never} of {all}: ticks are lost by crashes alone");
    assert!(crashes > 300, "{crashes}");
}

/// The control: without marks, leases alone do not keep ticks from running twice.
#[tokio::test(start_paused = true)]
async fn control_without_marks_runs_ticks_twice() {
    let harness = SchedulerHarness::new();
    let from = harness.now();
    let machines = SKEWS.map(|(name, ahead)| {
        let connection = Faulty::new(harness.store.clone()).with_latency(Duration::from_millis(2));
        let ahead = SignedDuration::from_secs(ahead);
        let table = Forgetful { store: Arc::new(connection.clone()), forgets: MARKS_OF_TICKS };
        harness.start_on(name, ahead, connection, table, [job(&harness, name)])
    });

    sleep(secs(HOURS * 360)).await;

    let (all, twice, never) = judge(&harness, from);
    println!("without marks, {all} ticks: {twice} twice, {never} never; {:?}", counts(&machines));
    assert!(twice > all / 2, "{twice} of {all}");
}
