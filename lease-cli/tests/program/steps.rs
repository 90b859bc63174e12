//! Keys for scripts: `hold`, `take` and `give`.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::process::Stdio;

use rustix::io::ioctl_fionbio;
use rustix::process::Signal;

use crate::place::{Place, Running, code, full, text, until};

/// A pipe that takes no more bytes.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (read, mut write) = pipe().unwrap();
    ioctl_fionbio(&write, true).unwrap();
    while write.write_all(&[0; 4096]).is_ok() {}
    ioctl_fionbio(&write, false).unwrap();
    (read, write)
}

#[test]
fn hold_keeps_the_key_until_stdin_closes() {
    let place = Place::new();
    let mut command = place.lease(&["hold", "job"]);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let who = place.output(&["who", "job"]);

    drop(holder.stdin.take());

    assert_eq!(code(holder.wait().unwrap()), 0);
    assert_eq!(text(&who.stdout).split('\t').nth(3), Some(line.trim_end()), "the token");
    assert!(place.is_free("job"));
}

#[test]
fn hold_releases_the_key_after_a_signal() {
    let place = Place::new();
    let mut command = place.lease(&["--json", "hold", "job"]);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"token\":"), "{line}");

    // `Child::wait` closes a stdin that `holder` still has. The end of stdin also ends the program, so the test
    // takes stdin out of `holder`.
    let _stdin = holder.stdin.take();
    let process = rustix::process::Pid::from_child(&holder);
    rustix::process::kill_process(process, Signal::TERM).unwrap();

    assert_eq!(code(holder.wait().unwrap()), 143);
    assert!(place.is_free("job"));
}

#[test]
fn hold_that_is_evicted_exits_with_124_and_frees_the_key() {
    let place = Place::new();
    let mut command = place.lease(&["hold", "job", "--ttl", "6s"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();

    // Takes stdin out of `child`, because `Child::wait` would close it.
    let _stdin = child.stdin.take();
    assert_eq!(place.code(&["evict", "job", "--grant", line.trim_end()]), 0);

    assert_eq!(code(child.wait().unwrap()), 124);
    assert!(place.is_free("job"), "before the ttl has passed");
}

#[test]
fn taken_key_is_held_until_it_is_given() {
    let place = Place::new();

    let taken = place.output(&["take", "job", "--ttl", "1h"]);
    let hand_over = text(&taken.stdout).trim_end();
    assert_eq!(place.code(&["run", "-n", "-q", "job", "--", "true"]), 75);
    let given = place.output(&["give", hand_over]);

    assert_eq!(text(&given.stdout), "job\n");
    assert!(place.is_free("job"));
    assert_eq!(place.code(&["give", hand_over]), 124, "only once");
}

#[test]
fn hand_over_is_read_from_stdin() {
    let place = Place::new();
    let taken = place.output(&["take", "job"]);
    let mut command = place.lease(&["--json", "give", "-"]);
    let mut giver = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();

    giver.stdin.take().unwrap().write_all(&taken.stdout).unwrap();

    assert_eq!(text(&giver.wait_with_output().unwrap().stdout), "{\"released\":\"job\"}\n");
    assert!(place.is_free("job"));
}

#[test]
fn take_without_a_wait_exits_with_75() {
    let place = Place::new();
    assert_eq!(place.code(&["take", "job", "--ttl", "1h"]), 0);

    let second = place.output(&["take", "-n", "job"]);

    assert_eq!(second.status.code(), Some(75));
    assert!(second.stdout.is_empty());
    assert_eq!(Running::of(&mut place.lease(&["give", "no hand-over"])).wait(), 64);
}

#[test]
fn key_whose_output_fails_is_released() {
    for subcommand in ["take", "hold"] {
        let place = Place::new();
        let (read, write) = pipe().unwrap();
        drop(read);
        let run = |stdout: Stdio| {
            let mut command = place.lease(&[subcommand, "job", "--ttl", "1h"]);
            let output = command.stdin(full_pipe().0).stdout(stdout).stderr(Stdio::piped());
            output.spawn().unwrap().wait_with_output().unwrap()
        };

        for stdout in [full(), write.into()] {
            let output = run(stdout);

            assert_eq!(output.status.code(), Some(125), "{subcommand}: {output:?}");
            assert!(text(&output.stderr).contains("output cannot be written"), "{output:?}");
            assert!(place.is_free("job"), "{subcommand}");
        }
    }
}

#[test]
fn signal_before_the_output_releases_the_key() {
    for subcommand in ["take", "hold"] {
        let place = Place::new();
        // Two processes must not create the store at the same time.
        assert!(place.is_free("job"));
        let ((_read, stdout), (stdin, _write)) = (full_pipe(), pipe().unwrap());
        let mut command = place.lease(&[subcommand, "job", "--ttl", "1h"]);
        let taker = Running::of(command.stdin(stdin).stdout(stdout));
        until("the key is held", || !place.is_free("job"));

        taker.signal(Signal::TERM);

        assert_eq!(taker.wait(), 143, "{subcommand}");
        assert!(place.is_free("job"), "{subcommand}");
    }
}

#[test]
fn hold_keeps_the_key_while_a_nonblocking_stdin_is_open() {
    let place = Place::new();
    let (stdin, write) = pipe().unwrap();
    ioctl_fionbio(&stdin, true).unwrap();
    let mut command = place.lease(&["hold", "job"]);
    let mut holder = command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();

    assert_eq!(place.code(&["run", "-q", "-w", "1s", "job", "--", "true"]), 75);
    drop(write);

    assert_eq!(code(holder.wait().unwrap()), 0);
    assert!(place.is_free("job"));
}
