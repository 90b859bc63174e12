//! What a command receives, and what remains after its end.

use std::io::Write;
use std::process::Stdio;

use crate::place::{Place, Running, group, is_alive, masks, text, until};

#[test]
fn command_runs_without_a_shell() {
    let place = Place::new();

    let output = place.output(&["run", "job", "--", "printf", "%s|", "$HOME", "*", "a b", "-n"]);

    assert_eq!(text(&output.stdout), "$HOME|*|a b|-n|");
}

#[test]
fn command_has_the_streams_of_the_program() {
    let place = Place::new();
    let mut command = place.lease(&["run", "job", "--", "sh", "-c", "cat; echo error >&2"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());

    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input").unwrap();
    let output = child.wait_with_output().unwrap();

    assert_eq!((text(&output.stdout), text(&output.stderr)), ("input", "error\n"));
}

#[test]
fn command_knows_key_token_and_lessee() {
    let place = Place::new();

    let script = "echo $LEASE_KEY $LEASE_TOKEN $LEASE_LESSEE; exec \"$LEASE\" who job";
    let mut command = place.lease(&["run", "job", "--", "sh", "-c", script]);
    let output = command.env("LEASE", crate::place::PROGRAM).output().unwrap();

    let (known, shown) = text(&output.stdout).split_once('\n').unwrap();
    let known: Vec<_> = known.split(' ').collect();
    let shown: Vec<_> = shown.split('\t').collect();
    assert_eq!(known, [shown[0], shown[3], shown[1]]);
}

#[test]
fn command_has_a_process_group_of_its_own() {
    let place = Place::new();
    let holder = place.start_script(&[], "exec sleep 600");
    let child = place.process("child");

    assert_ne!(group(child), group(holder.id()));
    assert_ne!(group(child), group(rustix::process::getpid()));
}

#[test]
fn command_has_default_signals() {
    let place = Place::new();

    // A Rust program ignores SIGPIPE, and `yes` would then not die of it.
    let script = "yes | head -n 1 > /dev/null; grep -E 'Sig(Ign|Blk)' /proc/self/status";
    let output = place.output(&["run", "job", "--", "sh", "-c", script]);

    assert_eq!(masks(text(&output.stdout)), [0, 0]);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn second_command_waits_for_the_end_of_the_first() {
    let place = Place::new();
    let script = "until [ -e go ]; do sleep 0.01; done; echo first $LEASE_TOKEN >> log";
    let first = place.start_script(&[], script);
    let mut second =
        place.start(&["run", "job", "--", "sh", "-c", "echo second $LEASE_TOKEN >> log"]);
    assert_eq!(place.code(&["run", "-n", "job", "--", "true"]), 75);
    assert!(!second.has_ended());

    std::fs::write(place.path("go"), "").unwrap();

    assert_eq!((first.wait(), second.wait()), (0, 0));
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    let words: Vec<_> = log.split_whitespace().collect();
    assert_eq!((words[0], words[2]), ("first", "second"));
    assert!(words[1].parse::<u64>().unwrap() < words[3].parse::<u64>().unwrap());
}

#[test]
fn heartbeats_keep_the_key_for_longer_than_its_ttl() {
    let place = Place::new();
    let mut holder = place.start_script(&["--ttl", "3s"], "sleep 8; echo done > end");

    while !place.path("end").exists() {
        let code = place.code(&["run", "-n", "-q", "job", "--", "test", "-e", "end"]);
        assert!(code == 75 || place.path("end").exists(), "exit {code}");
    }

    until("it has ended", || holder.has_ended());
}

#[test]
fn processes_left_in_the_group_are_stopped_before_the_release() {
    let place = Place::new();
    let script =
        "(trap 'echo asked > asked; exit' TERM; while :; do sleep 0.01; done) & echo $! > left";
    let holder = place.start_script(&[], script);
    let waiter = place.start(&[
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "grep -q '^State:.[^Z]' /proc/$(cat left)/status",
    ]);

    assert_eq!(holder.wait(), 0);

    assert_ne!(waiter.wait(), 0, "it is dead when the next command starts");
    assert_eq!(place.content("asked"), "asked");
}

#[test]
fn process_that_ignores_the_signal_is_killed_after_the_grace() {
    let place = Place::new();
    let script = "(trap '' TERM; while :; do sleep 0.01; done) & echo $! > left";
    let holder = place.start_script(&["--grace", "100ms"], script);
    let left = place.process("left");

    assert_eq!(holder.wait(), 0);

    assert!(!is_alive(left));
    assert!(place.is_free("job"));
}

#[test]
fn kept_key_stays_held_after_the_command() {
    let place = Place::new();

    assert_eq!(place.code(&["run", "job", "--keep-for", "1h", "--", "true"]), 0);
    assert_eq!(place.code(&["run", "other", "--keep-for", "1ms", "--", "sleep", "0.01"]), 0);

    assert_eq!(place.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_eq!(place.code(&["run", "-n", "other", "--", "true"]), 0);
}

#[test]
fn verbose_run_tells_who_holds_the_key_and_since_when() {
    let place = Place::new();
    let _holder = place.start_script(&[], "exec sleep 600");
    let mut command = place.lease(&["run", "-v", "-w", "100ms", "job", "--", "true"]);

    let output = command.output().unwrap();

    let message = text(&output.stderr);
    assert!(message.contains("job is held by "), "{message}");
    assert!(message.contains(", which started at 20"), "{message}");
    assert!(message.contains("; waiting"), "{message}");
}

#[test]
fn default_store_is_a_file_of_the_user() {
    let place = Place::new();
    if rustix::process::geteuid().is_root() {
        // As root, the default is a folder of the machine, which a test must not use.
        return;
    }
    let run = || {
        let mut command = place.lease(&["run", "-n", "job", "--", "true"]);
        command.env_remove("LEASE_STORE").env("XDG_STATE_HOME", place.folder());
        Running::of(&mut command)
    };

    assert_eq!(run().wait(), 0);

    assert!(place.path("lease/leases.db").exists());
}
