//! The exit codes of `lease run`.

use lease_test_servers::redis::free_port;

use crate::place::{Place, Running, full, text};

#[test]
fn exit_code_of_command_is_passed_on() {
    let place = Place::new();

    assert_eq!(place.code(&["run", "job", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(place.code(&["run", "job", "--", "true"]), 0);
    assert!(place.is_free("job"));
}

#[test]
fn death_by_signal_is_128_plus_its_number() {
    let place = Place::new();

    assert_eq!(place.code(&["run", "job", "--", "sh", "-c", "kill -KILL $$"]), 137);
    assert_eq!(place.code(&["run", "job", "--", "sh", "-c", "kill -TERM $$"]), 143);
    assert_eq!(place.code(&["run", "job", "--", "sh", "-c", "kill -64 $$"]), 192);
}

#[test]
fn held_key_exits_with_75_or_the_chosen_code() {
    let place = Place::new();
    let _holder = place.start_script(&[], "exec sleep 600");

    let held = place.output(&["run", "-n", "job", "--", "touch", "ran"]);
    let chosen = place.output(&["run", "-n", "-q", "-E", "0", "job", "--", "touch", "ran"]);
    let timed_out = place.code(&["run", "-w", "50ms", "job", "--", "touch", "ran"]);

    assert_eq!(held.status.code(), Some(75));
    assert!(text(&held.stderr).starts_with("lease: job is held by "), "{held:?}");
    assert_eq!(chosen.status.code(), Some(0));
    assert!(chosen.stderr.is_empty(), "{chosen:?}");
    assert_eq!(timed_out, 75);
    assert!(!place.path("ran").exists());
}

#[test]
fn lost_lease_exits_with_124_or_the_chosen_code() {
    for (options, expected) in [(&[][..], 124), (&["--lost-exit-code", "42"][..], 42)] {
        let place = Place::new();
        let holder = place.start_script(&[options, &["--ttl", "1s"]].concat(), "exec sleep 600");

        place.evict();

        assert_eq!(holder.wait(), expected);
    }
}

#[test]
fn store_out_of_reach_exits_with_69() {
    let place = Place::new();
    let url = format!("redis://127.0.0.1:{}", free_port());

    let output = place.output(&["--store", &url, "run", "-n", "job", "--", "touch", "ran"]);

    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn wrong_usage_exits_with_64() {
    let place = Place::new();

    for wrong in [
        &["run"][..],
        &["run", "job"],
        &["run", "", "--", "true"],
        &["run", "job", "--ttl", "5", "--", "true"],
        &["run", "job", "--ttl", "1ms", "--", "true"],
        &["run", "job", "-n", "-w", "5s", "--", "true"],
        &["run", "job", "--signal", "NONE", "--", "true"],
        &["run", "job", "--keep-for", "8days", "--", "true"],
        &["fly"],
        &["release", "job", "--grant", "1"],
    ] {
        assert_eq!(place.code(wrong), 64, "{wrong:?}");
    }
    assert_eq!(place.code(&["--help"]), 0);
    assert_eq!(place.code(&["run", "--help"]), 0);
    assert_eq!(place.code(&["--version"]), 0);
}

#[test]
fn wrong_configuration_exits_with_78() {
    let place = Place::new();

    for wrong in ["consul://host", "sqlite:none/leases.db", "sqlite:", "redis://host:port"] {
        let output = place.output(&["--store", wrong, "run", "job", "--", "touch", "ran"]);
        assert_eq!(output.status.code(), Some(78), "{wrong}: {output:?}");
        assert!(text(&output.stderr).starts_with("lease: "), "{output:?}");
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn full_stderr_keeps_the_exit_code() {
    let place = Place::new();

    let wrong = &mut place.lease(&["--store", "etcd:", "who", "job"]);
    let missing = &mut place.lease(&["run", "job", "--", "./none"]);

    assert_eq!(Running::of(wrong.stderr(full())).wait(), 78);
    assert_eq!(Running::of(missing.stderr(full())).wait(), 127);
}

#[test]
fn command_that_cannot_run_exits_with_126_or_127() {
    let place = Place::new();
    std::fs::write(place.path("data"), "no program").unwrap();

    let missing = place.output(&["run", "job", "--", "./none"]);
    let data = place.output(&["run", "job", "--", "./data"]);

    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).starts_with("lease: ./none cannot be executed: "));
    assert_eq!(data.status.code(), Some(126));
    assert!(place.is_free("job"));
}

#[test]
fn death_of_keeper_exits_with_125() {
    let place = Place::new();
    let holder = place.start_script(&[], "sleep 600 & echo $! > grandchild; wait");
    let grandchild = place.process("grandchild");

    rustix::process::kill_process(holder.keeper(), rustix::process::Signal::KILL).unwrap();

    assert_eq!(holder.wait(), 125);
    assert!(!crate::place::is_alive(grandchild));
    assert!(place.is_free("job"));
}

#[test]
fn usage_errors_say_what_to_write() {
    let place = Place::new();
    let folder = format!("sqlite://{}", place.folder().display());

    for (arguments, part) in [
        (&["run", "job", "true"][..], "lease run KEY -- COMMAND"),
        (&["watch", "--interval", "0s"], "10ms"),
        (&["--store", &folder, "ls"], "name a file in it"),
        (&["run", "a\tkey", "--", "true"], "control character"),
        (&["run", "job", "--ttl", "0s", "--", "true"], "100 ms to a day"),
    ] {
        let output = place.output(arguments);
        let message = text(&output.stderr);
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert!(matches!(output.status.code(), Some(64 | 78)), "{output:?}");
    }
    let help = place.output(&["run", "--help"]);
    assert!(!text(&help.stderr).contains("lease run KEY"), "{help:?}");
}

#[test]
fn key_may_have_spaces() {
    let place = Place::new();

    assert_eq!(place.code(&["run", "a key", "--", "sh", "-c", "test \"$LEASE_KEY\" = 'a key'"]), 0);
}
