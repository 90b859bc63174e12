//! Commands that leave the process group, or whose environment does not show the lessee: the lease binds them, too.

use std::process::Command;

use rustix::process::Signal;

use crate::place::{PROGRAM, Place, Running, group, is_alive, until};
use crate::terminal::Terminal;

/// Options and commands without a terminal. The keeper leads the group, so `setsid` does not fork.
const LEAVING: [&[&str]; 2] =
    [&["--", "setsid", "sleep", "600"], &["--foreground", "--", "env", "-i", "sleep", "600"]];

fn started(place: &Place, ttl: &str, rest: &[&str]) -> (Running, rustix::process::Pid) {
    let holder = place.start(&[&["run", "job", "--ttl", ttl], rest].concat());
    let child = holder.command("sleep");
    (holder, child)
}

#[test]
fn command_that_leaves_is_stopped_after_a_loss() {
    for rest in LEAVING {
        let place = Place::new();
        let (holder, child) = started(&place, "2s", rest);

        place.evict();

        assert_eq!(holder.wait(), 124, "{rest:?}");
        assert!(!is_alive(child));
    }
}

#[test]
fn signal_reaches_a_command_that_leaves() {
    for rest in LEAVING {
        let place = Place::new();
        let (holder, _child) = started(&place, "1m", rest);

        holder.signal(Signal::TERM);

        assert_eq!(holder.wait(), 143, "{rest:?}");
        assert!(place.is_free("job"));
    }
}

#[test]
fn keeper_kills_a_command_that_leaves() {
    for rest in LEAVING {
        let place = Place::new();
        let (holder, child) = started(&place, "2s", rest);

        holder.signal(Signal::STOP);
        until("the command is dead", || !is_alive(child));
        holder.signal(Signal::CONT);

        assert_eq!(holder.wait(), 124, "{rest:?}");
    }
}

#[test]
fn signal_reaches_a_command_once() {
    for options in [&[][..], &["--foreground"]] {
        let place = Place::new();
        let script = "trap 'echo caught >> caught' TERM; echo > ready; \
            until [ -e end ]; do sleep 0.01; done; exit 3";
        let holder = place.start_script(options, script);
        place.content("ready");

        holder.signal(Signal::TERM);
        place.content("caught");
        std::fs::write(place.path("end"), "").unwrap();

        assert_eq!(holder.wait(), 3);
        assert_eq!(place.content("caught"), "caught", "once");
    }
}

#[test]
fn shell_with_job_control_is_stopped_after_a_loss() {
    let (place, terminal) = (Place::new(), Terminal::open());
    let command = ["run", "job", "--ttl", "2s", "--grace", "10ms", "--", "bash", "--norc", "-i"];
    let holder = Running::of(&mut terminal.lease(&place, &command));
    let child = holder.command("bash");
    until("the shell leads a group", || group(child) == child.as_raw_nonzero().get());

    place.evict();

    assert_eq!(holder.wait(), 124);
    assert!(!is_alive(child));
}

#[test]
fn command_that_overwrites_its_environment_is_stopped_after_a_loss() {
    let (place, terminal) = (Place::new(), Terminal::open());
    let command = ["run", "job", "--ttl", "2s", "--", "perl", "-e", "$0 = 'x' x 4000; sleep 600"];
    let holder = Running::of(&mut terminal.lease(&place, &command));
    let child = holder.command("xxxx");

    place.evict();

    assert_eq!(holder.wait(), 124);
    assert!(!is_alive(child));
}

#[test]
fn inner_lease_on_a_terminal_keeps_its_keeper_after_the_loss_of_the_outer_one() {
    let (place, terminal) = (Place::new(), Terminal::open());
    let script = "(trap '' TERM HUP; while :; do sleep 0.01; done) & echo $! > left; wait";
    let mut command = terminal.lease(&place, &["run", "job", "--ttl", "2s", "--grace", "10ms"]);
    command.args(["--", PROGRAM, "run", "inner", "--grace", "1m", "--", "sh", "-c", script]);
    let holder = Running::of(&mut command);
    let left = place.process("left");

    place.evict();

    assert_eq!(holder.wait(), 124);
    until("the inner command is dead", || !is_alive(left));
}

#[test]
fn processes_that_leave_the_group_of_the_terminal_are_stopped() {
    let (place, terminal) = (Place::new(), Terminal::open());
    let mut command: Command = terminal.lease(&place, &["run", "job", "--ttl", "2s", "--"]);
    command.args(["sh", "-c", "setsid sleep 600 & echo $! > left; wait"]);
    let holder = Running::of(&mut command);
    let left = place.process("left");

    place.evict();

    assert_eq!(holder.wait(), 124);
    assert!(!is_alive(left));
}
