//! Compares obtain and release with the same requests over the same client, and with etcd's own lock:
//! `cargo bench -p lease-etcd`.
//!
//! The server's data are in memory, so the numbers have no time of a disk.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a failed setup ends the benchmark, which prints its results"
)]

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, LockOptions, Txn, TxnOp};
use futures_util::future::join_all;
use lease_core::store::{Claim, Grant, LockStore, Nonce, Obtained};
use lease_etcd::{EtcdRegister, EtcdStore};
use lease_test_servers::etcd::{EtcdServer, PATIENT};
use lease_test_servers::measure::{is_measuring, median, timed};

const RUNS: usize = 15;
const CYCLES: usize = 480;
const TTL: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if !is_measuring() {
        return;
    }
    let server = EtcdServer::start().unwrap();
    println!("{}", EtcdServer::version());
    for tasks in [1, 16] {
        measure(&server, tasks).await;
    }
}

async fn measure(server: &EtcdServer, tasks: usize) {
    let register = EtcdRegister::builder([server.endpoint()]).with_timeout(PATIENT);
    let store = EtcdStore::new(register.connect().await.unwrap());
    let client = Client::connect([server.endpoint()], None).await.unwrap();
    let rounds = CYCLES / tasks;
    let (mut ours, mut bare, mut locks) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..=RUNS {
        let all = |task| tokio::spawn(lease_cycles(store.clone(), task, rounds));
        let our_time = timed(join_all((0..tasks).map(all))).await;
        let all = |task| tokio::spawn(bare_cycles(client.clone(), task, rounds));
        let bare_time = timed(join_all((0..tasks).map(all))).await;
        let all = |task| tokio::spawn(lock_cycles(client.clone(), task, rounds));
        let lock_time = timed(join_all((0..tasks).map(all))).await;
        // The first run creates the keys, so it does not count.
        if run > 0 {
            ours.push(CYCLES as f64 / our_time);
            bare.push(CYCLES as f64 / bare_time);
            locks.push(CYCLES as f64 / lock_time);
        }
    }
    print(&format!("{tasks} tasks, leases per second"), &ours, &bare);
    print(&format!("{tasks} tasks, etcd's own locks per second"), &locks, &bare);
}

async fn lease_cycles(store: EtcdStore, task: usize, rounds: usize) {
    for _ in 0..rounds {
        let grant = obtain(&store, &format!("key-{task}")).await;
        store.release(&grant, None).await.unwrap();
    }
}

async fn obtain(store: &EtcdStore, key: &str) -> Grant {
    let claim = Claim::new(key.parse().unwrap(), "a".parse().unwrap(), Nonce::random(), TTL);
    match store.obtain(&claim).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// Two transactions on the revision of the last one, with values as long as those of a lease.
async fn bare_cycles(client: Client, task: usize, rounds: usize) {
    let (mut kv, key) = (client.kv_client(), format!("bare/key-{task}"));
    let found = kv.get(key.clone(), None).await.unwrap();
    let mut revision = found.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision);
    for _ in 0..rounds {
        for length in [HELD, FREE] {
            let is_same = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.clone(), vec![b'x'; length], None);
            let answer = kv.txn(Txn::new().when([is_same]).and_then([put])).await.unwrap();
            assert!(answer.succeeded());
            revision = answer.header().unwrap().revision();
        }
    }
}

/// A lock on one lease of etcd.
async fn lock_cycles(mut client: Client, task: usize, rounds: usize) {
    let lease = client.lease_grant(600, None).await.unwrap().id();
    for _ in 0..rounds {
        let options = LockOptions::new().with_lease(lease);
        let locked = client.lock(format!("lock-{task}"), Some(options)).await.unwrap();
        client.unlock(locked.key()).await.unwrap();
    }
    client.lease_revoke(lease).await.unwrap();
}

fn print(what: &str, ours: &[f64], bare: &[f64]) {
    let mut ratios: Vec<_> = ours.iter().zip(bare).map(|(one, bare)| one / bare).collect();
    ratios.sort_by(f64::total_cmp);
    let quartile = |part: usize| ratios.get(ratios.len() * part / 4).unwrap();
    println!(
        "{what}: {:.0}, bare {:.0}, ratio {:.2} ({:.2} to {:.2})",
        median(ours.to_vec()),
        median(bare.to_vec()),
        quartile(2),
        quartile(1),
        quartile(3),
    );
}

/// The lengths of records in bytes, with a holder and without one.
const HELD: usize = 330;
const FREE: usize = 180;
