//! Commands of operators from another process: `listing.rs` lists and histories, `pausing.rs` pauses, `triggering.rs`
//! triggers, `answering.rs` why a trigger is refused, `repeating.rs` attempts and deaths, `taking.rs` triggers
//! whose scheduler died after it took them, `changing.rs` jobs that are
//! added and removed.

mod answering;
mod changing;
mod listing;
mod pausing;
mod repeating;
mod simulated;
mod taking;
mod triggering;

use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_core::store::LeaseTable;
use lease_scheduler::{
    Job, JobControl, Schedule, SkewedWallClock, Trigger, TriggerNumber, Triggered,
};
use tokio::time::timeout;

use crate::harness::{SchedulerHarness, key};

/// Returns the control of an operator, with a connection of its own.
fn operator(harness: &SchedulerHarness) -> JobControl {
    operator_on(harness, harness.store.clone())
}

fn operator_on(harness: &SchedulerHarness, table: impl LeaseTable + Clone) -> JobControl {
    let locker = Locker::new(table.clone()).with_lessee("operator".parse().unwrap());
    let wall = SkewedWallClock::new(harness.now(), 1.0);
    JobControl::new(&locker, table).with_wall_clock(Arc::new(wall))
}

/// Sends a trigger without arguments to the job `job`.
async fn trigger(control: &JobControl) -> TriggerNumber {
    match control.trigger("job", &Trigger::new()).await.unwrap() {
        Triggered::Accepted(number) => number,
        other => panic!("{other:?}"),
    }
}

/// Returns a job whose body takes `length`.
fn job(harness: &SchedulerHarness, by: &str, length: Duration) -> Job {
    Job::new(key("job"), harness.log.body(by, length))
}

fn hourly() -> Schedule {
    Schedule::cron("0 * * * *", "UTC").unwrap()
}

/// Waits until the schedulers have written the record of the job, so that commands find it.
async fn until_listed(control: &JobControl) {
    let listed = async {
        while control.job("job").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), listed).await.unwrap();
}
