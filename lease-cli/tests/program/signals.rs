//! Signals end a wait, and reach the whole group of a command.

use rustix::process::{Signal, kill_process};

use crate::place::{Place, Running, is_alive, masks, text, until};

const SIGNALS: [(Signal, &str); 4] =
    [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")];

fn listens(running: &Running) {
    let path = format!("/proc/{}/status", running.id().as_raw_nonzero());
    until("the program listens", || {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(caught.trim(), 16).unwrap_or_default() & (1 << 14) != 0
    });
}

#[test]
fn signal_ends_a_wait_at_once() {
    for (signal, name) in SIGNALS {
        let place = Place::new();
        let _holder = place.start_script(&[], "exec sleep 600");
        let waiter = place.start(&["run", "job", "--", "touch", "ran"]);
        listens(&waiter);

        waiter.signal(signal);

        assert_eq!(waiter.wait(), 128 + signal.as_raw(), "{name}");
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn signal_reaches_the_command_and_its_children() {
    for (signal, name) in SIGNALS {
        let place = Place::new();
        // Background processes of a shell ignore SIGINT and SIGQUIT, so a trap in a subshell would
        // not run.
        let grandchild = format!(
            "env --default-signal=INT,QUIT sh -c 'trap \"echo caught > caught; exit\" {name}; echo $$ > ready; \
             while :; do sleep 0.01; done'"
        );
        let script = format!("trap 'wait; exit 9' {name}; {grandchild} & wait; exit 8");
        let holder = place.start_script(&[], &script);
        place.content("ready");

        holder.signal(signal);

        assert_eq!(place.content("caught"), "caught", "{name}");
        assert_eq!(holder.wait(), 9, "{name}");
        assert!(place.is_free("job"));
    }
}

#[test]
fn interrupt_reaches_a_foreground_command_without_a_terminal() {
    for name in ["INT", "QUIT"] {
        let place = Place::new();
        let script = format!("trap 'exit 9' {name}; echo > ready; while :; do sleep 0.01; done");
        let mut command = std::process::Command::new("setsid");
        command.args(["env", "--default-signal=INT,QUIT", crate::place::PROGRAM, "run", "job"]);
        command
            .args(["--foreground", "--", "sh", "-c", &script])
            .stdin(std::process::Stdio::null());
        command.env("LEASE_STORE", "sqlite:leases.db").current_dir(place.folder());
        let holder = Running::of(&mut command);
        place.content("ready");

        holder.signal(if name == "INT" { Signal::INT } else { Signal::QUIT });

        assert_eq!(holder.wait(), 9, "{name}");
    }
}

#[test]
fn command_that_continues_after_a_signal_keeps_the_key() {
    let place = Place::new();
    let script = "trap 'echo caught > caught' TERM; echo > ready; while :; do sleep 0.01; done";
    let mut holder = place.start_script(&["--ttl", "3s", "--grace", "10ms"], script);
    place.content("ready");

    holder.signal(Signal::TERM);
    place.content("caught");

    // Longer than two ttls.
    let waited = place.code(&["run", "-w", "8s", "job", "--", "true"]);
    assert_eq!(waited, 75);
    assert!(!holder.has_ended());
}

#[test]
fn ignored_signal_stays_ignored() {
    let place = Place::new();
    let mut command = std::process::Command::new("env");
    // The test itself may have been started with ignored signals, by nohup.
    command.args(["--default-signal", "--ignore-signal=HUP", crate::place::PROGRAM]);
    command.args(["run", "job", "--", "sh", "-c"]);
    command.arg("grep SigIgn /proc/$PPID/status /proc/self/status");
    command.env("LEASE_STORE", "sqlite:leases.db").current_dir(place.folder());

    let output = command.output().unwrap();

    // A Rust program also ignores SIGPIPE.
    assert_eq!(masks(text(&output.stdout)), [0x1001, 1]);
}

#[test]
fn kill_of_lease_kills_command_and_grandchildren() {
    let place = Place::new();
    let script =
        "(trap '' TERM INT HUP; echo > ready; while :; do sleep 0.01; done) & echo $! > left; wait";
    let holder = place.start_script(&["--ttl", "1s"], script);
    let (child, left) = (place.process("child"), place.process("left"));
    place.content("ready");
    let keeper = holder.keeper();

    holder.signal(Signal::KILL);

    assert_eq!(holder.wait(), -9);
    until("all are dead", || [child, left, keeper].iter().all(|process| !is_alive(*process)));
    // The ttl frees the key.
    assert_eq!(place.code(&["run", "-w", "1m", "job", "--", "true"]), 0);
}

#[test]
fn command_dies_with_lease_even_without_the_keeper() {
    let place = Place::new();
    let holder = place.start_script(&[], "trap '' TERM INT HUP; while :; do sleep 0.01; done");
    let (child, keeper) = (place.process("child"), holder.keeper());
    kill_process(keeper, Signal::STOP).unwrap();

    holder.signal(Signal::KILL);

    until("the command is dead", || !is_alive(child));
    kill_process(keeper, Signal::KILL).unwrap();
}

#[test]
fn blocked_signals_are_unblocked() {
    let place = Place::new();
    let mut command = std::process::Command::new("env");
    command.args(["--block-signal=TERM,CHLD", crate::place::PROGRAM, "run", "job", "--"]);
    command.args(["sh", "-c", "kill -TERM $PPID; exec sleep 600"]);
    command.env("LEASE_STORE", "sqlite:leases.db").current_dir(place.folder());

    assert_eq!(Running::of(&mut command).wait(), 143);
}
