//! The job that exports, with leases and events on a real Redis.
#![expect(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_export::queue::RedisQueue;
use lease_export::{
    Capacity, Event, EventBuffer, Exporter, Limits, MemorySink, Parts, RedisBuffer, RedisLink,
};
use lease_redis::RedisStore;
use lease_scheduler::{Schedule, Scheduler, SchedulerHandle, TableSwitch, export_job};
use lease_test_servers::redis::{PATIENT, RedisServer, available};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

#[tokio::test(flavor = "multi_thread")]
async fn fleet_exports_every_event() {
    if !available() {
        return;
    }
    let (server, sink) = (RedisServer::start(), MemorySink::new(Limits::KINESIS));
    let buffer = buffer(&link(&server).await);
    let machines = [start(&server, &sink).await, start(&server, &sink).await];

    for numbers in [1..=3, 4..=5] {
        let last = *numbers.end();
        let events: Vec<_> = numbers.map(event).collect();
        let _kept = buffer.append(&events).await.unwrap();
        until_arrived(&sink, last).await;
    }

    let last = machines[0].0.last_run("export").await.unwrap().unwrap();
    assert!(last.note.is_empty() || last.note.ends_with(" events sent"), "{last:?}");
    for (handle, task) in machines {
        handle.stop();
        task.await.unwrap();
    }
    assert_eq!(buffer.pending().await.unwrap(), 0);
}

async fn start(server: &RedisServer, sink: &MemorySink) -> (SchedulerHandle, JoinHandle<()>) {
    let store = RedisStore::builder(server.url()).with_timeout(PATIENT).connect().await.unwrap();
    let (locker, link) = (Locker::new(store.clone()), link(server).await);
    let switch = TableSwitch::new("switch".parse().unwrap(), &locker, store.clone());
    let parts = Parts {
        switch: Arc::new(switch.on_at_first()),
        queue: Arc::new(RedisQueue::new(link.clone(), "orders", LIMIT)),
        buffer: Arc::new(buffer(&link)),
        sink: Arc::new(sink.clone()),
    };
    let exporter = Exporter::new(locker.clone(), "orders".parse().unwrap(), parts);
    let job = export_job("export".parse().unwrap(), exporter).unwrap();
    let job = job.on(Schedule::cron("* * * * * *", "UTC").unwrap());
    let scheduler = Scheduler::builder(locker, store).with_job(job).build().unwrap();
    (scheduler.handle(), tokio::spawn(scheduler.run()))
}

async fn link(server: &RedisServer) -> RedisLink {
    RedisLink::connect_with_timeout(&server.url(), LIMIT).await.unwrap()
}

fn buffer(link: &RedisLink) -> RedisBuffer {
    RedisBuffer::new(link.clone(), "orders", Capacity::default())
}

fn event(number: u64) -> Event {
    Event::new(number.to_string().parse().unwrap(), &json!({ "number": number })).unwrap()
}

/// An event may arrive twice if the machine stalls.
async fn until_arrived(sink: &MemorySink, last: u64) {
    let all: BTreeSet<_> = (1..=last).map(|number| number.to_string()).collect();
    let arrived = || sink.ids().iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let waiting = async {
        while arrived() != all {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, waiting).await.unwrap();
}

const LIMIT: Duration = Duration::from_secs(60);
