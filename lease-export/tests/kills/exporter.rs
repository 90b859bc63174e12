//! A process that exports until it is killed, or kills itself at a step it was told.
//!
//! `lease-exporter URL NAME STEP TIMES` tells on standard output each step that it is about to take,
//! and that it has taken; when it has told `STEP` for the `TIMES`th time, it sends itself SIGKILL, with
//! 0 never. What it sends goes to the list `sink` of the same Redis: token, name, and the ids of a
//! record's events.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "one that cannot work fails its test, and lines are how it speaks"
)]

mod telling;

use std::sync::Arc;
use std::time::Duration;

use lease_core::{LeaseOptions, Lessee, Locker};
use lease_redis::RedisStore;
use lease_scheduler::export::{Capacity, Exporter, Parts, RedisBuffer, Retries, Worked};
use lease_scheduler::queue::RedisQueue;
use lease_scheduler::{RedisLink, TableSwitch};
use tokio::time::sleep;

use self::telling::{ListSink, Steps, Telling};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("URL NAME STEP TIMES");
    let (url, name, step, times) = (next(), next(), next(), next());
    let steps = Arc::new(Steps::dying_at(step, times.parse().expect("a number of times")));

    let store = RedisStore::connect(&url).await.expect("Redis");
    let link = RedisLink::connect(&url).await.expect("Redis");
    let locker = Locker::new(store.clone())
        .with_lessee(Lessee::new(name.as_str()).expect("a name"))
        .with_options(LeaseOptions::new(TTL).expect("a ttl"));
    let switch = TableSwitch::new("switch".parse().expect("a key"), &locker, store);
    let buffer = RedisBuffer::new(link.clone(), "events", Capacity::default());
    let queue = RedisQueue::new(link.clone(), "jobs", TTL);
    let parts = Parts {
        switch: Arc::new(switch.on_at_first()),
        queue: Arc::new(Telling::new(queue, &steps)),
        buffer: Arc::new(Telling::new(buffer, &steps)),
        sink: Arc::new(Telling::new(ListSink::new(&url, name), &steps)),
    };
    let few = Retries::new(1, Duration::from_millis(5), Duration::from_millis(5));
    let exporter = Exporter::new(locker, "export".parse().expect("a key"), parts)
        .with_retries(few.expect("retries"))
        .with_events_at_once(64)
        .with_hand_over_wait(TTL)
        .expect("a wait");

    println!("ready");
    loop {
        // First what the dead have left: whoever schedules another job takes the lease from theirs.
        while let Ok(Worked::Done(..) | Worked::Returned(..)) =
            exporter.run_next_job(Duration::ZERO).await
        {}
        // Whether it fails is the judge's to see, by what arrives.
        let scheduled = exporter.schedule_job().await;
        drop((scheduled, exporter.run_next_job(Duration::ZERO).await));
        drop(exporter.flush_pending_events(Some(100)).await);
        sleep(Duration::from_millis(5)).await;
    }
}

const TTL: Duration = Duration::from_millis(500);
