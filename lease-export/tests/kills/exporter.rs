//! The process of an exporter that is killed: this test program, which runs only
//! [`exporter_process`].
//!
//! The process prints a line before and after each step, and kills itself at the step that its
//! environment names.
//! The sink is the list `sink` on the same Redis server. Each element has the token, the exporter's
//! name, and the ids of a record's events.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{LeaseOptions, Lessee, Locker};
use lease_export::queue::RedisQueue;
use lease_export::{
    Capacity, Exporter, Parts, RedisBuffer, RedisLink, Retries, TableSwitch, Worked,
};
use lease_redis::RedisStore;
use lease_test_servers::redis::RedisServer;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::steps::{ListSink, Steps, TracedStep};

/// The exporter kills itself when it prints `step` for the `times`th time, or never if `times` is
/// 0.
pub(crate) fn start(server: &RedisServer, name: &str, step: &str, times: u64) -> Child {
    Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "exporter::exporter_process", "--ignored", "--nocapture"])
        .env(PROCESS, [&server.url(), name, step, &times.to_string()].join("\n"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("an exporter")
}

#[tokio::test(flavor = "current_thread")]
#[ignore = "a process that `start` starts, not a test"]
async fn exporter_process() {
    let Ok(arguments) = std::env::var(PROCESS) else { return };
    let mut arguments = arguments.lines();
    let mut next = || arguments.next().expect("URL NAME STEP TIMES").to_owned();
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
        queue: Arc::new(TracedStep::new(queue, &steps)),
        buffer: Arc::new(TracedStep::new(buffer, &steps)),
        sink: Arc::new(TracedStep::new(ListSink::new(&url, name), &steps)),
    };
    let few = Retries::new(1, Duration::from_millis(5), Duration::from_millis(5));
    let exporter = Exporter::new(locker, "export".parse().expect("a key"), parts)
        .with_retries(few.expect("retries"))
        .with_events_at_once(64)
        .with_hand_over_wait(TTL)
        .expect("a wait");

    println!("ready");
    loop {
        // A new job would take the lease that the jobs of killed exporters need. So those jobs run
        // first.
        while let Ok(Worked::Done(..) | Worked::Returned(..)) =
            exporter.run_next_job(Duration::ZERO).await
        {}
        // The test checks only the events that arrive.
        let scheduled = exporter.schedule_job().await;
        drop((scheduled, exporter.run_next_job(Duration::ZERO).await));
        drop(exporter.flush_pending_events(Some(100)).await);
        sleep(Duration::from_millis(5)).await;
    }
}

const TTL: Duration = Duration::from_millis(500);

/// The arguments of the process, one per line.
const PROCESS: &str = "LEASE_EXPORT_KILLED_EXPORTER";
