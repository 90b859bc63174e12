//! Random faults of a store while a command runs.

use std::path::Path;
use std::time::Duration;

use lease_test_servers::proxy::{Flow, Link};
use lease_test_servers::redis::{RedisServer, available};
use lease_test_servers::tools::memory_folder;
use rustix::process::{Signal, kill_process};
use tokio::time::sleep;

use crate::judge::{Gate, script};
use crate::processes::{Lease, Random, count, running_time};

/// A busy machine may stop a process for a part of this time.
const TTL: Duration = Duration::from_secs(3);
const LANES: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct Results {
    survived: u64,
    stopped: u64,
    /// The shortest time from the end of a stopped command to the end of its ttl.
    shortest: Option<Duration>,
}

struct Store {
    server: RedisServer,
    link: Link,
}

impl Store {
    async fn start() -> Self {
        let server = RedisServer::with_append_only_file();
        let link = Link::start(server.address()).await.unwrap();
        Self { server, link }
    }

    fn inject(&mut self, fault: u64) {
        match fault {
            0 => self.link.hold(),
            1 => self.link.set_replies(Flow::Held),
            2 => self.link.set_requests(Flow::Delayed(Duration::from_secs(2))),
            3 => self.link.cut(),
            4 => self.server.hang(),
            _ => self.server.kill(),
        }
    }

    fn repair(&mut self, fault: u64) {
        match fault {
            0..=2 => self.link.heal(),
            3 => self.link.heal_with_loss(),
            4 => self.server.go_on(),
            _ => self.server.start_again(),
        }
    }
}

async fn one_fault(store: &mut Store, folder: &Path, random: &mut Random, results: &mut Results) {
    let gate = Gate::at(folder);
    let before = gate.largest();
    // SIGKILL ends a command that ignores the signal.
    let script = script(if random.below(2) == 0 { "trap '' TERM;" } else { "" });
    let arguments = ["run", "--ttl", "3s", "-q", "job", "--", "sh", "-c", &script];
    let url = store.link.url();
    let mut lease = Lease::start(&arguments, folder, &url);
    let patience = running_time() + PATIENCE;
    while gate.largest() <= before {
        assert!(running_time() < patience, "no command started");
        // On a slow machine, a lease may be lost before its command starts.
        if lease.0.try_wait().unwrap().is_some() {
            lease = Lease::start(&arguments, folder, &url);
        }
        sleep(Duration::from_millis(2)).await;
    }
    let token = gate.largest();
    sleep(Duration::from_millis(random.below(3000))).await;

    let fault = random.below(6);
    let injected = running_time();
    store.inject(fault);
    sleep(Duration::from_millis(random.below(7500))).await;
    store.repair(fault);
    // The group of a stopped command ends now at the latest. Otherwise, heartbeats are answered
    // again.
    let end = running_time() + TTL * 2;
    while lease.0.try_wait().unwrap().is_none() && running_time() < end {
        sleep(Duration::from_millis(5)).await;
    }
    let Some(status) = lease.0.try_wait().unwrap() else {
        results.survived += 1;
        let keeper = lease.children().first().copied().unwrap();
        kill_process(lease.id(), Signal::KILL).unwrap();
        crate::processes::until("its group has ended", || {
            crate::processes::members(keeper).is_empty()
        });
        return;
    };
    assert_eq!(status.code(), Some(124), "fault {fault}");
    // No heartbeat that was sent after the fault counts, so the lease ends before this deadline.
    let (deadline, last) = (injected + TTL, gate.last_life(token));
    assert!(last < deadline, "fault {fault}: the command lived {:?} too long", last - deadline);
    results.stopped += 1;
    let left = deadline.checked_sub(last);
    results.shortest = [results.shortest, left].into_iter().flatten().min();
}

async fn lane(number: u64, faults: u64) -> Results {
    let (mut store, mut random) = (Store::start().await, Random::new(number));
    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    let mut results = Results::default();
    for _number in 0..faults {
        one_fault(&mut store, folder.path(), &mut random, &mut results).await;
        let overlaps = Gate::at(folder.path()).overlaps();
        assert!(overlaps.is_empty(), "two commands ran at once: {overlaps}");
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn command_is_stopped_before_the_deadline_of_a_failed_store() {
    if !available() {
        return;
    }
    let faults = count("LEASE_FAULTS", 24);

    let lanes: Vec<_> =
        (0..LANES).map(|number| tokio::spawn(lane(number, faults.div_ceil(LANES)))).collect();

    for lane in lanes {
        println!("{:?}", lane.await.unwrap());
    }
}
