//! Clocks that are set forward over a tick.

use jiff::SignedDuration;
use lease_scheduler::{Job, Missed, Schedule};
use tokio::time::sleep;

use crate::world::{World, key, secs};

#[tokio::test(start_paused = true)]
async fn tick_that_a_clock_steps_over_is_run() {
    for before in [secs(1), secs(5), secs(30)] {
        let world = World::new();
        let job = Job::new(key("export"), world.log.body("a", secs(1)))
            .on(Schedule::cron("* * * * *", "UTC").unwrap())
            .missed(Missed::SkipAfter(secs(2)))
            .unwrap();
        let machine = world.start("a", [job]);
        sleep(secs(60).saturating_sub(before)).await;

        // The clock shows nine seconds after the tick.
        machine.wall.step(SignedDuration::try_from(before + secs(9)).unwrap());
        sleep(secs(10)).await;

        assert_eq!(world.log.count(), 1, "{before:?} before the tick");
        assert_eq!(machine.told.missed(), [], "{before:?} before the tick");
        machine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ticks_that_a_clock_steps_over_by_hours_are_missed() {
    let world = World::new();
    let job = Job::new(key("export"), world.log.body("a", secs(1)))
        .on(Schedule::cron("0 3 * * *", "UTC").unwrap())
        .missed(Missed::SkipAfter(secs(2)))
        .unwrap();
    let machine = world.start("a", [job]);
    sleep(secs(10)).await;

    machine.wall.step(SignedDuration::from_hours(9));
    sleep(secs(60)).await;

    assert_eq!(world.log.count(), 0);
    assert_eq!(machine.told.missed().len(), 1);
}
