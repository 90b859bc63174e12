//! Processes that wait in turn are killed and cancel their waits at random moments.
//!
//! [`judge`] compares the reports of the processes in [`fleet`] with the commands of the server.
//! All times are the wall clock of this machine, which the server also uses.

mod controls;
mod fleet;
mod judge;

use std::time::Duration;

use lease_core::Lease;
use lease_core::store::{LockStore, Nonce, micros_since_1970};
use lease_test_servers::claims::soon;
use tokio::time::{sleep, timeout};

use self::fleet::{Fleet, URL, is_cancelled, is_obtained};
use self::judge::Commands;
use crate::setting::{eventually, key, locker, one, one_at, servers};

const PROCESSES: usize = 20;

const KILLS: usize = 200;

const CANCELLATIONS: usize = 200;

const HAND_OVERS: usize = 2_000;

const TTL: Duration = Duration::from_secs(2);

/// `cargo test --release -p lease-redis --all-features --test servers -- --ignored --nocapture two_hundred_kills`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and needs a machine that answers in time"]
async fn two_hundred_kills_and_cancellations_keep_the_order() {
    let Some([server]) = servers() else { return };
    let watching = Commands::watch(&server).await;
    let mut fleet = Fleet::start(&server, PROCESSES);

    let mut kills = 0;
    while kills < KILLS || fleet.count(is_cancelled) < CANCELLATIONS {
        sleep(part_of(Duration::from_millis(400))).await;
        fleet.replace(kills % PROCESSES).await;
        kills += 1;
    }
    let cancelled = fleet.count(is_cancelled);
    fleet.stop().await;
    server.command("SET last no-more-commands");
    let commands = soon(watching).await.unwrap();

    let holds = fleet.holds();
    let judged = commands.judge(&holds);
    println!(
        "{kills} kills, {cancelled} cancellations, {} holds, {} grants to waiters in the queue",
        holds.len(),
        commands.granted.len(),
    );
    println!("longest gap {judged:?}");
    if let Ok(file) = std::env::var(TRACE) {
        std::fs::write(file, commands.trace(&fleet, judged.from, judged.until)).unwrap();
    }
    assert_eq!(judged.out_of_order, 0, "grants that are not in the order of arrival");
    assert!(holds.len() > KILLS, "{}", holds.len());
    assert!(judged.part_of_bound <= 1.1, "a gap is too long: {judged:?}");
    let store = one(&server).await;
    eventually("the key is free", async || {
        store.holder(&key()).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// `cargo test --release -p lease-redis --all-features --test servers -- --ignored --nocapture two_thousand`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute"]
async fn two_thousand_hand_overs_between_processes_keep_the_order() {
    let Some([server]) = servers() else { return };
    let watching = Commands::watch(&server).await;
    let mut fleet = Fleet::start(&server, PROCESSES);

    while fleet.count(is_obtained) < HAND_OVERS {
        sleep(Duration::from_millis(100)).await;
    }
    let cancelled = fleet.count(is_cancelled);
    fleet.stop().await;
    server.command("SET last no-more-commands");
    let commands = soon(watching).await.unwrap();

    let holds = fleet.holds();
    let judged = commands.judge(&holds);
    println!(
        "{} holds of {} processes, {cancelled} cancellations, {} grants to waiters in the queue: {judged:?}",
        holds.len(),
        fleet.holders(),
        commands.granted.len(),
    );
    assert_eq!(judged.out_of_order, 0, "grants that are not in the order of arrival");
    assert_eq!(fleet.holders(), PROCESSES);
    assert!(commands.granted.len() > HAND_OVERS / 2, "{}", commands.granted.len());
}

fn part_of(length: Duration) -> Duration {
    let [first, ..] = Nonce::random().get().into_bytes();
    length.mul_f64(f64::from(first) / 255.0)
}

#[ignore = "the child process of another test"]
#[tokio::test]
async fn obtains_the_key_again_and_again() {
    let Ok(url) = std::env::var(URL) else { return };
    let (locker, key) = (locker(one_at(url).await, TTL), key());
    loop {
        let wait = locker.wait_until_obtained(&key);
        let lease: Lease = if part_of(Duration::from_secs(1)) < Duration::from_millis(250) {
            match timeout(part_of(Duration::from_millis(200)), wait).await {
                Ok(lease) => lease.unwrap(),
                Err(_elapsed) => {
                    println!("cancelled");
                    continue;
                }
            }
        } else {
            wait.await.unwrap()
        };
        // Lease time starts anew in each process, so the process prints the wall clock.
        println!("obtained {} {}", lease.token(), micros_since_1970());
        sleep(part_of(Duration::from_millis(20))).await;
        println!("released {} {}", lease.token(), micros_since_1970());
        lease.release().await.unwrap();
    }
}

/// Names a file for the commands and reports around the longest gap between holders.
const TRACE: &str = "LEASE_TEST_TRACE_OF_GAP";
