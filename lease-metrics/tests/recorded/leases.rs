//! Lockers on a store that fails.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{LeaseKey, LeaseOptions, Locker};
use lease_memory::MemoryStore;
use lease_metrics::LeaseMetrics;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::recording::{Alert, Recording, mins};

pub(crate) const ALERTS: &[&[&str]] = &[OUTAGE, CRASH, RISK, LATE, TWO_HOLDERS];
const OUTAGE: &[&str] = &["LeaseLost", "SingletonWithoutHolder", "LeaseStoreErrors"];
const CRASH: &[&str] = &["SingletonWithoutHolder"];
const RISK: &[&str] = &["LeaseAtRisk"];
const LATE: &[&str] = &["LeaseMarginLow", "LeaseStoreErrors"];
const TWO_HOLDERS: &[&str] = &["SingletonWithTwoHolders"];

/// A process, and its connection to the store.
struct Candidate {
    connection: Faulty<MemoryStore>,
    tasks: Vec<JoinHandle<()>>,
}

impl Candidate {
    /// Starts a process that waits for the key `leader`, and for a key of its own.
    fn start(recording: &mut Recording, name: &str, store: &MemoryStore, ttl: Duration) -> Self {
        let metrics = recording.process(name).with_metrics(|| {
            LeaseMetrics::builder("memory")
                .with_group("leader", |key| key.as_str() == "leader")
                .with_group("jobs", |key| key.as_str().starts_with("jobs/"))
                .build()
        });
        let connection = Faulty::new(store.clone()).with_latency(Duration::from_millis(2));
        let options = LeaseOptions::new(ttl).unwrap();
        let options = options.with_heartbeats_per_ttl(if ttl > mins(1) { 10 } else { 3 }).unwrap();
        let seed = name.bytes().map(u64::from).sum();
        let locker = Locker::new(connection.clone())
            .with_options(options)
            .with_seed(seed)
            .with_metrics(Arc::new(metrics));
        let hold = |key: &str| tokio::spawn(hold(locker.clone(), key.parse().unwrap()));
        let tasks = vec![hold("leader"), hold(&format!("jobs/{name}"))];
        Self { connection, tasks }
    }

    fn cut_off(&self) {
        self.connection.choose(|_| Some(Fault::Hang));
    }

    fn heal(&self) {
        self.connection.heal();
    }

    /// Ends the process, which releases its keys if it can reach the store.
    fn stop(self, recording: &mut Recording, name: &str) {
        self.tasks.iter().for_each(JoinHandle::abort);
        recording.end(name);
    }
}

/// Holds `key` for ever. After a loss, waits for it again.
async fn hold(locker: Locker, key: LeaseKey) {
    loop {
        match locker.wait_until_obtained(&key).await {
            Ok(lease) => drop(lease.lost().await),
            Err(_) => sleep(Duration::from_secs(1)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn healthy_fleet_and_its_deployment_fire_no_alert() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let old = ["a", "b"].map(|name| Candidate::start(&mut recording, name, &store, TTL));
    recording.run_for(mins(20)).await;

    for (old, [name, new]) in old.into_iter().zip([["a", "c"], ["b", "d"]]) {
        old.stop(&mut recording, name);
        drop(Candidate::start(&mut recording, new, &store, TTL));
        recording.run_for(mins(10)).await;
    }

    recording.expect_none_so_far();
    recording.check(&[]);
}

#[tokio::test(start_paused = true)]
async fn outage_shorter_than_ttl_fires_no_alert() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let fleet = ["a", "b"].map(|name| Candidate::start(&mut recording, name, &store, TTL));
    recording.run_for(mins(10)).await;

    fleet.iter().for_each(Candidate::cut_off);
    recording.run_for(Duration::from_secs(15)).await;
    fleet.iter().for_each(Candidate::heal);
    recording.run_for(mins(15)).await;

    recording.expect_none_so_far();
    recording.check(&[]);
}

#[tokio::test(start_paused = true)]
async fn outage_longer_than_ttl_loses_leases_and_singleton() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let fleet = ["a", "b"].map(|name| Candidate::start(&mut recording, name, &store, TTL));
    recording.run_for(mins(10)).await;
    recording.expect_none_so_far();

    fleet.iter().for_each(Candidate::cut_off);
    recording.run_for(mins(3)).await;
    let lost: [Alert; 2] = [
        ("LeaseLost", r#"group="leader",cause="expired""#),
        ("LeaseLost", r#"group="jobs",cause="expired""#),
    ];
    recording.expect(&[lost[0], lost[1], ("SingletonWithoutHolder", "")]);
    recording.run_for(mins(4)).await;
    recording.expect(&[("SingletonWithoutHolder", ""), ("LeaseStoreErrors", r#"store="memory""#)]);
    fleet.iter().for_each(Candidate::heal);
    recording.run_for(mins(10)).await;

    recording.expect(&[]);
    recording.check(OUTAGE);
}

#[tokio::test(start_paused = true)]
async fn outage_shorter_than_long_ttl_puts_leases_at_risk() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let fleet = ["a", "b"].map(|name| Candidate::start(&mut recording, name, &store, mins(10)));
    recording.run_for(mins(10)).await;
    recording.expect_none_so_far();

    fleet.iter().for_each(Candidate::cut_off);
    recording.run_for(Duration::from_secs(150)).await;
    recording.expect(&[("LeaseAtRisk", r#"group="leader""#), ("LeaseAtRisk", r#"group="jobs""#)]);
    fleet.iter().for_each(Candidate::heal);

    // No other alert fires after the outage.
    for _ in 0..15 {
        recording.run_for(mins(1)).await;
        recording.expect(&[]);
    }
    recording.check(RISK);
}

/// The store answers one of three heartbeats, after three seconds.
#[tokio::test(start_paused = true)]
async fn late_heartbeats_leave_low_margin() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let only = Candidate::start(&mut recording, "a", &store, TTL);
    // Each lease has a heartbeat of its own, so that the faults do not depend on their order.
    only.tasks[1].abort();
    recording.run_for(mins(10)).await;
    recording.expect_none_so_far();

    let mut heartbeats = 0;
    only.connection.choose(move |call| {
        heartbeats += u32::from(call == Call::Heartbeat);
        match heartbeats % 3 {
            _ if call != Call::Heartbeat => None,
            0 => Some(Fault::DelayReply(Duration::from_secs(3))),
            _ => Some(Fault::Hang),
        }
    });
    recording.run_for(mins(8)).await;
    recording.expect(&[
        ("LeaseMarginLow", r#"group="leader""#),
        ("LeaseStoreErrors", r#"store="memory""#),
    ]);
    only.heal();
    recording.run_for(mins(10)).await;

    recording.expect(&[]);
    recording.check(LATE);
}

#[tokio::test(start_paused = true)]
async fn crash_of_all_candidates_leaves_singleton_without_holder() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let fleet = ["a", "b"].map(|name| Candidate::start(&mut recording, name, &store, TTL));
    recording.run_for(mins(10)).await;
    recording.expect_none_so_far();

    for (candidate, name) in fleet.into_iter().zip(["a", "b"]) {
        candidate.cut_off();
        candidate.stop(&mut recording, name);
    }
    recording.run_for(mins(3)).await;
    recording.expect(&[("SingletonWithoutHolder", "")]);
    let _new = Candidate::start(&mut recording, "c", &store, TTL);
    recording.run_for(mins(10)).await;

    recording.expect(&[]);
    recording.check(CRASH);
}

/// After a wrong deployment, a process uses a store of its own.
#[tokio::test(start_paused = true)]
async fn second_store_makes_two_holders() {
    let (mut recording, store) = (Recording::start(), MemoryStore::new());
    let _a = Candidate::start(&mut recording, "a", &store, TTL);
    let b = Candidate::start(&mut recording, "b", &store, TTL);
    recording.run_for(mins(10)).await;
    recording.expect_none_so_far();

    b.stop(&mut recording, "b");
    let wrong = Candidate::start(&mut recording, "wrong", &MemoryStore::new(), TTL);
    recording.run_for(mins(3)).await;
    recording.expect(&[("SingletonWithTwoHolders", "")]);
    wrong.stop(&mut recording, "wrong");
    let _right = Candidate::start(&mut recording, "right", &store, TTL);
    recording.run_for(mins(10)).await;

    recording.expect(&[]);
    recording.check(TWO_HOLDERS);
}

const TTL: Duration = Duration::from_secs(30);
