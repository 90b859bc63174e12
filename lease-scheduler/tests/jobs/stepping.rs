//! Clocks that are set forward over a tick.

use jiff::SignedDuration;
use lease_scheduler::{Job, Misfire, Schedule};
use tokio::time::sleep;

use crate::harness::{SchedulerHarness, key, secs};

#[tokio::test(start_paused = true)]
async fn tick_in_short_clock_step_runs() {
    for before in [secs(1), secs(5), secs(30)] {
        let harness = SchedulerHarness::new();
        let job = Job::new(key("export"), harness.log.body("a", secs(1)))
            .on(Schedule::cron("* * * * *", "UTC").unwrap())
            .misfire(Misfire::StartWithin(secs(2)))
            .unwrap();
        let machine = harness.start("a", [job]);
        sleep(secs(60).saturating_sub(before)).await;

        // The clock now shows a time that is nine seconds after the tick.
        machine.wall.step(SignedDuration::try_from(before + secs(9)).unwrap());
        sleep(secs(10)).await;

        assert_eq!(harness.log.count(), 1, "{before:?} before the tick");
        assert_eq!(machine.reports.missed(), [], "{before:?} before the tick");
        machine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ticks_in_clock_step_of_hours_are_missed() {
    let harness = SchedulerHarness::new();
    let job = Job::new(key("export"), harness.log.body("a", secs(1)))
        .on(Schedule::cron("0 3 * * *", "UTC").unwrap())
        .misfire(Misfire::StartWithin(secs(2)))
        .unwrap();
    let machine = harness.start("a", [job]);
    sleep(secs(10)).await;

    machine.wall.step(SignedDuration::from_hours(9));
    sleep(secs(60)).await;

    assert_eq!(harness.log.count(), 0);
    assert_eq!(machine.reports.missed().len(), 1);
}
