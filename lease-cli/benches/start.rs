//! Measures the time from the start of `lease run` to the first output of its command, beside
//! `flock`: `cargo bench -p lease-cli --bench start`. `LEASE_PROGRAM` names another program than
//! the one that cargo has built.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 200;

fn time_to_output(command: &mut Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let start = now();
    let mut child = command.spawn().unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let taken = now() - start;
    assert!(child.wait().unwrap().success());
    taken
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    Instant::now()
}

fn quartiles(mut taken: Vec<Duration>) -> [Duration; 3] {
    taken.sort_unstable();
    [1, 2, 3].map(|quarter| *taken.get(taken.len() * quarter / 4).unwrap())
}

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = std::env::var("LEASE_PROGRAM");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_lease").to_owned());
    let run = |arguments: &[&str], program: &str, folder: &Path| {
        let mut command = Command::new(program);
        command.args(arguments).args(["echo", "x"]).current_dir(folder);
        time_to_output(command.env("LEASE_STORE", "sqlite:leases.db"))
    };
    let (mut bare, mut flock, mut lease) = (Vec::new(), Vec::new(), Vec::new());
    for _round in 0..ROUNDS {
        bare.push(run(&[], "env", folder.path()));
        flock.push(run(&["lock"], "flock", folder.path()));
        lease.push(run(&["run", "-n", "job", "--"], &program, folder.path()));
    }
    for (name, taken) in [("env", bare), ("flock", flock), ("lease run", lease)] {
        let [first, median, third] = quartiles(taken);
        println!("{name:10} median {median:.2?}, quartiles {first:.2?} and {third:.2?}");
    }
}
