//! The loss of a lease: the command is stopped before another process can obtain the key.

use std::time::Duration;

use rusqlite::Connection;
use rustix::process::{Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::place::{Place, Running, full, is_alive, until};

/// This script ends at SIGTERM, and leaves a file.
const POLITE: &str =
    "trap 'echo asked > asked; exit 5' TERM; echo > ready; while :; do sleep 0.01; done";
/// Only SIGKILL ends this script.
const STUBBORN: &str = "trap 'echo asked > asked' TERM; echo > ready; while :; do sleep 0.01; done";

fn running_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Holds the write lock of the store's file, as a stopped process would.
fn locked(place: &Place) -> Connection {
    let store = Connection::open(place.path("leases.db")).unwrap();
    store.busy_timeout(Duration::from_secs(60)).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    store
}

#[test]
fn command_is_asked_to_end_before_the_deadline() {
    let place = Place::new();
    let holder = place.start_script(&["--ttl", "2s"], POLITE);
    place.content("ready");

    let store = locked(&place);

    assert_eq!(holder.wait(), 124);
    assert_eq!(place.content("asked"), "asked");
    drop(store);
}

#[test]
fn command_that_does_not_end_is_killed_before_the_deadline() {
    let place = Place::new();
    let holder = place.start_script(&["--ttl", "2s"], STUBBORN);
    let child = place.process("child");
    place.content("ready");

    let store = locked(&place);
    let start = running_time();
    until("the command is dead", || !is_alive(child));

    // The store applies no heartbeat after `start`, so the lease ends before `start` + 2 s. A busy machine may run
    // the keeper, or this test, up to 100 ms late.
    let limit = Duration::from_millis(2100);
    assert!(running_time() - start < limit, "the command outlives its lease");
    assert_eq!(holder.wait(), 124);
    assert_eq!(place.content("asked"), "asked");
    drop(store);
}

#[test]
fn chosen_signal_asks_the_command_to_end() {
    let place = Place::new();
    let script = "trap 'echo asked > asked; exit' USR1; echo > ready; while :; do sleep 0.01; done";
    let holder = place.start_script(&["--ttl", "2s", "--signal", "USR1"], script);
    place.content("ready");

    let store = locked(&place);

    assert_eq!(holder.wait(), 124);
    assert_eq!(place.content("asked"), "asked");
    drop(store);
}

#[test]
fn store_that_comes_back_in_time_changes_nothing() {
    let place = Place::new();
    let mut holder = place.start_script(&["--ttl", "4s"], POLITE);
    place.content("ready");

    let store = locked(&place);
    std::thread::sleep(Duration::from_millis(1500)); // more than one heartbeat
    drop(store);

    assert_eq!(place.code(&["run", "-w", "5s", "job", "--", "true"]), 75, "longer than the ttl");
    assert!(!holder.has_ended());
    assert!(!place.path("asked").exists());
}

#[test]
fn pause_longer_than_the_ttl_stops_the_command() {
    let place = Place::new();
    let holder = place.start_script(&["--ttl", "1s"], STUBBORN);
    let child = place.process("child");
    place.content("ready");

    holder.signal(Signal::STOP);
    until("the key is free", || {
        let was_alive = is_alive(child);
        let is_free = place.is_free("job");
        assert!(!(was_alive && is_free && is_alive(child)), "the command outlives its lease");
        is_free
    });
    holder.signal(Signal::CONT);

    assert_eq!(holder.wait(), 124);
}

#[test]
fn pause_shorter_than_the_ttl_changes_nothing() {
    let place = Place::new();
    let mut holder = place.start_script(&["--ttl", "20s"], POLITE);
    place.content("ready");

    holder.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    holder.signal(Signal::CONT);

    assert_eq!(place.code(&["run", "-w", "1s", "job", "--", "true"]), 75);
    assert!(!holder.has_ended());
    assert!(is_alive(place.process("child")));
}

#[test]
fn paused_keeper_learns_the_deadlines_that_it_missed() {
    let place = Place::new();
    let mut holder = place.start_script(&["--ttl", "3s"], POLITE);
    let keeper = holder.keeper();
    place.content("ready");

    kill_process(keeper, Signal::STOP).unwrap();
    assert_eq!(place.code(&["run", "-q", "-w", "5s", "job", "--", "true"]), 75);
    kill_process(keeper, Signal::CONT).unwrap();

    assert_eq!(place.code(&["run", "-q", "-w", "1s", "job", "--", "true"]), 75);
    assert!(!holder.has_ended());
}

#[test]
fn hung_store_and_full_stderr_keep_the_exit_code_of_the_command() {
    let place = Place::new();
    let script = "echo > ready; until [ -e go ]; do sleep 0.01; done; exit 7";
    let mut command = place.lease(&["run", "-v", "job", "--ttl", "1h", "--", "sh", "-c", script]);
    let holder = Running::of(command.stderr(full()));
    place.content("ready");

    let store = locked(&place);
    std::fs::write(place.path("go"), "").unwrap();

    assert_eq!(holder.wait(), 7, "long before the ttl has passed");
    drop(store);
}
