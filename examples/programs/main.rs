//! Runs every example as a program, and checks its output and exit code.
//!
//! `cargo test` builds the examples of a package beside its tests, and this test finds the programs
//! there. For `unit_test`, cargo builds and runs the tests. This test starts no second cargo, which
//! would build the dependencies again with other features.
#![expect(clippy::expect_used, reason = "a test may fail")]

mod exporter;
mod metrics;
mod shards;

use std::path::{Path, PathBuf};
use std::process::Command;

use lease_test_servers::dynamodb::Server;
use lease_test_servers::redis;
use tokio::task::spawn_blocking;

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.parent().and_then(Path::parent);
    let program = target.expect("tests are in target/*/deps").join("examples").join(example);
    let hint = "`cargo test -p lease-examples --all-features` builds it";
    assert!(program.exists(), "{} does not exist: {hint}", program.display());
    program
}

fn run(example: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program(example));
    // Files that an example writes must not end up in the sources.
    command.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR"));
    let output = command.output().expect("the example starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("examples print UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("examples print UTF-8"),
    }
}

fn file_with(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.csv"));
    std::fs::write(&path, text).expect("the folder for tests can be written");
    path.display().to_string()
}

impl Ended {
    fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }
}

#[test]
fn quickstart_pays() {
    let ended = run("quickstart", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, "paid: [\"Ada Lovelace\"]\n");
}

#[test]
fn nightly_job_runs_once_a_night_on_three_machines() {
    let ended = run("nightly_job", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    let count = |word: &str| ended.stdout.lines().filter(|line| line.contains(word)).count();
    assert_eq!(count(" under token "), 4, "{}", ended.stdout);
    assert_eq!(count(" skipped: "), 8, "{}", ended.stdout);
    assert_eq!(count("next due: "), 4, "{}", ended.stdout);
    // Daylight saving time begins on this night, and the clocks skip half past two.
    assert!(ended.stdout.contains("2026-03-29T03:00:00+02:00"), "{}", ended.stdout);
}

#[test]
fn job_of_a_past_year_is_never_due() {
    let ended = run("nightly_job", &["--cron", "0 0 0 1 1 * 2001"]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, "  next due: never\n\n".repeat(4));
}

#[test]
fn readme_contains_the_quickstart_code() {
    let (_about, code) = include_str!("../quickstart.rs")
        .split_once("\n\n")
        .expect("the code comes after a blank line");

    assert!(include_str!("../../README.md").contains(&format!("```rust\n{code}```\n")));
}

#[test]
fn killed_worker_is_replaced_and_payments_are_made_once() {
    let ended = run("singleton_job", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.last_line(),
        "verdict: each payment was accepted exactly once; \
         payments: 24, wrong: 0, late writes refused: 1"
    );
    let killed = ended.stdout.find("KILLED").expect("a worker is killed");
    let takes_over = ended.stdout.find("continues after").expect("another worker takes over");
    let refused = ended.stdout.find("is stale").expect("the late write is refused");
    assert!(killed < takes_over && takes_over < refused, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_on_redis_ends_as_on_memory() {
    if !redis::available() {
        return;
    }
    let servers = redis::independent(3);
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();

    for store in [format!("redis://{}", places[0]), format!("redis://{}", places.join(","))] {
        let ended = spawn_blocking(move || run("singleton_job", &["--store", &store])).await;

        let ended = ended.expect("the program was run");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.last_line().contains("payments: 24, wrong: 0"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_processes_obtain_the_key_in_order() {
    if !redis::available() {
        return;
    }
    let server = redis::RedisServer::start();
    let store = format!("redis://{}", server.address());

    let ended = spawn_blocking(move || run("waiting_in_turn", &["--store", &store])).await;

    let ended = ended.expect("the program was run");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.last_line(), "verdict: 20 processes obtained the key in the order of arrival");
}

#[test]
fn job_on_a_file_ends_as_on_memory() {
    let file = std::env::temp_dir().join(format!("lease-examples-{}.db", std::process::id()));

    let ended = run("singleton_job", &["--store", &format!("sqlite://{}", file.display())]);

    for suffix in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{suffix}", file.display())));
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().contains("payments: 24, wrong: 0"), "{ended:?}");
}

#[tokio::test]
async fn job_on_dynamodb_ends_as_on_memory() {
    let server = Server::dynoxide().await;
    let store = format!("dynamodb://{}/leases", server.address());

    let ended = spawn_blocking(move || run("singleton_job", &["--store", &store])).await;

    let ended = ended.expect("the program was run");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().contains("payments: 24, wrong: 0"), "{ended:?}");
}

#[test]
fn one_payment_is_made_with_two_workers_and_a_short_ttl() {
    let file = file_with("one", "Ada Lovelace,4815.00\n");

    let ended = run("singleton_job", &["--items", &file, "--workers", "2", "--ttl", "0.5"]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().contains("payments: 1, wrong: 0"), "{ended:?}");
}

#[test]
fn closed_pipe_causes_no_panic() {
    let output = Command::new("bash")
        .args(["-c", "\"$0\" --ttl 0.5 | head -n 1"])
        .arg(program("singleton_job"))
        .output()
        .expect("bash is there");

    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn late_write_of_a_paused_holder_is_refused() {
    let ended = run("fenced_write", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.last_line(),
        "verdict: the report reads \"final report\"; the late write changed nothing"
    );
    for line in ["is_held(): false", "lost(): lease on report", "token 1 is stale"] {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
}

#[test]
fn nightly_job_reports_bad_input_in_one_line() {
    let cases: [(&[&str], &str); 10] = [
        (&["--cron", "61 * * * *"], "cron expression \"61 * * * *\" cannot be read: "),
        (&["--cron", "at night"], "cron expression \"at night\" cannot be read: "),
        (&["--cron", "0 0 30 2 *"], "cron expression \"0 0 30 2 *\" has no time"),
        (&["--zone", "Europe/Atlantis"], "time zone \"Europe/Atlantis\": "),
        (&["--every", "0"], "interval 0ns is out of range: a millisecond to a thousand years"),
        (&["--every", "1e12"], "interval 1000000000000s is out of range"),
        (&["--every", "-1"], "interval -1.0 is not a length in seconds"),
        (&["--every", "nan"], "interval NaN is not a length in seconds"),
        (&["--every", "often"], "invalid value 'often' for '--every <SECONDS>'"),
        (
            &["--every", "60", "--cron", "0 3 * * *"],
            "the argument '--every <SECONDS>' cannot be used with '--cron <EXPRESSION>'",
        ),
    ];

    refused_in_one_line("nightly_job", &cases);
}

#[test]
fn singleton_job_reports_bad_input_in_one_line() {
    let empty = file_with("empty", "");
    let malformed = file_with("malformed", "employee,amount\nAda,1.00\nAlan\n");
    let cases: [(&[&str], &str); 10] = [
        (&["--items", "nowhere.csv"], "nowhere.csv cannot be read: "),
        (&["--items", &empty], "has no payments"),
        (&["--items", &malformed], "line 3: \"Alan\" is not a payment"),
        (&["--workers", "0"], "0 workers are out of range: 2 to 100"),
        (&["--workers", "1000000"], "1000000 workers are out of range"),
        (&["--ttl", "0"], "ttl 0ns is out of range: a ttl is 100 ms to a day"),
        (&["--ttl", "1e9"], "ttl 1000000000s is out of range"),
        (&["--ttl", "-1"], "ttl -1.0 is not a length in seconds"),
        (&["--ttl", "nan"], "ttl NaN is not a length in seconds"),
        (&["--store", "postgres://x"], "store URL \"postgres://x\" names no database"),
    ];

    refused_in_one_line("singleton_job", &cases);
}

fn refused_in_one_line(example: &str, cases: &[(&[&str], &str)]) {
    for (arguments, sentence) in cases {
        let ended = run(example, arguments);

        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
        let message = ended.stderr.split("\n\nUsage:").next().unwrap_or_default();
        let message = message.split("\n\nFor more").next().unwrap_or_default().trim_end();
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {ended:?}");
        assert!(message.contains(sentence), "{arguments:?}: {ended:?}");
    }
}
