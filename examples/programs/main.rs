//! Runs the examples as their readers do, and looks at how they end.
//!
//! They are found beside this test: `cargo test` builds the examples of a package along with its
//! tests (of `unit_test` it builds the tests instead, and runs them). Running them through a
//! second cargo would build their dependencies once more, with other features than those of a
//! test of the whole workspace; calling them as functions would not see what reaches the
//! terminal, nor the exit code.
#![expect(clippy::expect_used, reason = "a test may fail")]

#[cfg(unix)]
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(unix)]
use std::process::Stdio;

use lease_tests::dynamodb::Server;
#[cfg(feature = "aws")]
use lease_tests::kinesis;
use lease_tests::redis;
use tokio::task::spawn_blocking;

/// What a program left behind.
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
    let built = "it is built by `cargo test -p lease-examples`, beside the tests";
    assert!(program.exists(), "{} is not there: {built}", program.display());
    program
}

fn run(example: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program(example));
    // What they write without being told where, is not left in the sources.
    command.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR"));
    let output = command.output().expect("the example starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("examples print UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("examples print UTF-8"),
    }
}

/// A file of this test run, which the next run overwrites.
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
fn a_nightly_job_runs_once_a_night_on_three_machines() {
    let ended = run("nightly_job", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    let count = |word: &str| ended.stdout.lines().filter(|line| line.contains(word)).count();
    assert_eq!(count(" under token "), 4, "{}", ended.stdout);
    assert_eq!(count(" skipped: "), 8, "{}", ended.stdout);
    assert_eq!(count("next due: "), 4, "{}", ended.stdout);
    // The night without half past two.
    assert!(ended.stdout.contains("2026-03-29T03:00:00+02:00"), "{}", ended.stdout);
}

#[test]
fn the_readme_shows_the_quickstart() {
    let (_about, code) = include_str!("quickstart.rs")
        .split_once("\n\n")
        .expect("the code comes after a blank line");

    assert!(include_str!("../README.md").contains(&format!("```rust\n{code}```\n")));
}

#[test]
fn a_killed_worker_is_succeeded_and_everybody_is_paid_once() {
    let ended = run("singleton_job", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.last_line(),
        "verdict: each payment was accepted exactly once; \
         payments: 24, wrong: 0, late writes refused: 1"
    );
    let killed = ended.stdout.find("KILLED").expect("a worker is killed");
    let takes_over = ended.stdout.find("takes over").expect("another goes on");
    let refused = ended.stdout.find("is stale").expect("its late write is refused");
    assert!(killed < takes_over && takes_over < refused, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_redis_ends_as_on_memory() {
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

#[tokio::test]
async fn a_job_on_dynamodb_ends_as_on_memory() {
    let server = Server::dynoxide().await;
    let store = format!("dynamodb://{}/leases", server.address());

    let ended = spawn_blocking(move || run("singleton_job", &["--store", &store])).await;

    let ended = ended.expect("the program was run");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().contains("payments: 24, wrong: 0"), "{ended:?}");
}

#[test]
fn one_payment_two_workers_and_a_short_ttl_are_enough() {
    let file = file_with("one", "Ada Lovelace,4815.00\n");

    let ended = run("singleton_job", &["--items", &file, "--workers", "2", "--ttl", "0.5"]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().contains("payments: 1, wrong: 0"), "{ended:?}");
}

#[test]
fn a_reader_who_leaves_early_causes_no_panic() {
    let output = Command::new("bash")
        .args(["-c", "\"$0\" --ttl 0.5 | head -n 1"])
        .arg(program("singleton_job"))
        .output()
        .expect("bash is there");

    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_paused_holder_is_refused() {
    let ended = run("fenced_write", &[]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.last_line(),
        "verdict: the report reads \"final report\"; the late write changed nothing"
    );
    for told in ["is_held(): false", "lost(): lease on report", "token 1 is stale"] {
        assert!(ended.stdout.contains(told), "{told}: {ended:?}");
    }
}

#[test]
fn all_shards_are_read_in_order_by_workers_that_come_and_go() {
    let ended = run("shards", &[]);

    is_proved(&ended);
    let told = [
        "3 workers share 12 shards",
        "worker-4 joins",
        "4 workers share 12 shards",
        "worker-2 is KILLED",
        "are merged into 14",
        "worker-1 has handed over everything",
        "2 workers share 12 shards",
    ];
    let places: Vec<_> = told.iter().filter_map(|text| ended.stdout.find(text)).collect();
    assert!(places.len() == told.len() && places.is_sorted(), "{places:?}: {ended:?}");
    assert!(!ended.stdout.contains('\x1b'), "no terminal, no control characters: {ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_read_on_servers_as_on_memory() {
    let dynamodb = Server::dynoxide().await;
    let redis = redis::available().then(redis::RedisServer::start);
    let mut stores = vec![format!("dynamodb://{}/leases", dynamodb.address())];
    stores.extend(redis.iter().map(|server| format!("redis://{}", server.address())));

    // At once, since they take their time.
    let start = |store: String| spawn_blocking(move || run("shards", &["--store", &store]));
    let runs: Vec<_> = stores.into_iter().map(start).collect();

    for ended in runs {
        is_proved(&ended.await.expect("the program was run"));
    }
}

#[test]
fn two_workers_two_shards_and_a_short_ttl_are_enough() {
    is_proved(&run("shards", &["--workers", "2", "--shards", "2", "--ttl", "0.5"]));
}

#[test]
fn more_workers_than_shards_end_as_well() {
    let ended = run("shards", &["--workers", "20", "--shards", "3", "--ttl", "0.5"]);

    is_proved(&ended);
    for told in ["21 workers share 3 shards", "is KILLED", "worker-1 has handed over everything"] {
        assert!(ended.stdout.contains(told), "{told}: {ended:?}");
    }
}

fn is_proved(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let verdict = ended.last_line();
    assert!(verdict.starts_with("verdict: every record was worked on, in order; "), "{ended:?}");
    assert!(verdict.contains("missing: 0, partition keys out of order: 0"), "{ended:?}");
}

/// Runs `shards` until it has told `text`, then ends it as a supervisor would.
#[cfg(unix)]
fn stopped_when_told(command: &mut Command, text: &str) -> Ended {
    let mut program = command.stdout(Stdio::piped()).spawn().expect("the example starts");
    let mut lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
    let mut stdout = String::new();
    for line in lines.by_ref().map(|line| line.expect("examples print UTF-8")) {
        stdout.extend([&*line, "\n"]);
        if line.contains(text) {
            let process = program.id().to_string();
            let sent = Command::new("kill").args(["-TERM", &process]).status();
            assert!(sent.expect("kill is there").success());
            break;
        }
    }
    stdout.extend(lines.map(|line| line.expect("examples print UTF-8") + "\n"));
    let code = program.wait().expect("it ends").code();
    Ended { code, stdout, stderr: String::new() }
}

#[cfg(unix)]
#[test]
fn a_run_that_is_stopped_half_way_hands_over_and_proves_nothing() {
    let mut command = Command::new(program("shards"));

    let ended = stopped_when_told(&mut command, "3 workers share 12 shards");

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("all workers have stopped"), "{ended:?}");
    assert_eq!(ended.last_line(), "verdict: none, since this was stopped half-way");
}

/// Not AWS, but the way there is the same.
#[cfg(all(unix, feature = "aws"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_a_server_is_read_until_told_to_stop() {
    let server = kinesis::Server::ferrokinesis().await;
    server.create_stream("orders", 4).await;
    let mut command = Command::new(program("shards"));
    command.args(["--stream", "orders", "--workers", "2"]).envs([
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]);
    command.env("AWS_ENDPOINT_URL_KINESIS", format!("http://{}", server.address()));

    let ended = spawn_blocking(move || stopped_when_told(&mut command, "have changed hands")).await;

    let ended = ended.expect("the program was run");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().ends_with("all workers have stopped"), "{ended:?}");
}

#[test]
fn a_scheduler_is_killed_while_it_sends_and_every_event_arrives() {
    everything_arrived(&run("exporter", &[]));
}

fn everything_arrived(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let verdict = "verdict: every event arrived; arrived: 240, missing: 0, again: ";
    assert!(ended.last_line().starts_with(verdict), "{ended:?}");
    let killed = ended.stdout.find("KILLED while it sends").expect("a scheduler is killed");
    assert!(ended.stdout[killed..].contains("sends 15 events"), "another goes on: {ended:?}");
    // What it had sent, it had not removed.
    assert!(!ended.last_line().ends_with("again: 0"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_on_redis_arrive_as_on_memory_and_an_operator_is_guarded() {
    if !redis::available() {
        return;
    }
    let server = redis::RedisServer::start();
    let store = server.url();
    let url = store.clone();
    let ended = spawn_blocking(move || run("exporter", &["--store", &url])).await;
    everything_arrived(&ended.expect("the program was run"));

    let orders = [
        ("pending", "0 events are pending", 0),
        ("put tea/hour 3", "tea/hour is in bucket ", 0),
        ("put tea/fortnight 3", "tea/fortnight is in bucket ", 0),
        ("put tea/week 3", "tea/week is in bucket ", 0),
        ("disable", "refused: export is not disabled while the intake is open", 1),
        ("emergency", "the intake is open", 0),
        ("stop", "the intake is stopped", 0),
        ("put tea/hour 4", "refused: tea/hour, the intake is stopped", 1),
        ("disable", "export is disabled", 0),
        ("flush", "0 events were sent: export is disabled", 0),
        ("send", "no job: export is disabled", 0),
        ("open", "refused: the intake is not opened while export is disabled", 1),
        ("enable", "export is enabled", 0),
        ("open", "the intake is open", 0),
        ("flush 7", "0 events were sent", 0),
    ];
    for (order, told, code) in orders {
        let ended = ordered(&store, order).await;
        assert_eq!(ended.code, Some(code), "{order}: {ended:?}");
        assert!(ended.last_line().starts_with(told), "{order}: {ended:?}");
    }

    // Once its seconds are over, what was put is sent, but for what is no count, which is told.
    let mut told = String::new();
    while ordered(&store, "list").await.last_line() != "0 buckets wait" {
        let ended = ordered(&store, "send").await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        told.push_str(&ended.stdout);
    }
    assert!(told.contains(" 1 came from buckets"), "{told}");
    let why = "leaves out tea/fortnight, Some(\"3\"): it cannot be parsed: period \"fortnight\" is \
               not known";
    assert!(told.contains(why), "{told}");
    assert!(!told.contains("tea/week"), "{told}");

    ordered(&store, "put tea/day 1").await;
    assert_eq!(ordered(&store, "list").await.last_line(), "1 buckets wait");
    assert_eq!(ordered(&store, "delete").await.last_line(), "1 buckets were deleted");
    assert_eq!(ordered(&store, "list").await.last_line(), "0 buckets wait");
    let emergency = ordered(&store, "emergency").await;
    assert_eq!(emergency.last_line(), "the intake is stopped: Operator");
}

async fn ordered(store: &str, order: &str) -> Ended {
    let (store, order) = (store.to_owned(), order.to_owned());
    let program = move || {
        let mut words = vec!["--store", store.as_str()];
        words.extend(order.split(' '));
        run("exporter", &words)
    };
    spawn_blocking(program).await.expect("the program was run")
}

/// Not AWS, but the way there is the same.
#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_in_a_stream_on_a_server() {
    let server = kinesis::Server::ferrokinesis().await;
    server.create_stream("orders", 2).await;
    let mut command = Command::new(program("exporter"));
    command.args(["--sink", "kinesis:orders"]).envs([
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]);
    command.env("AWS_ENDPOINT_URL_KINESIS", format!("http://{}", server.address()));

    let output = spawn_blocking(move || command.output()).await.expect("the program was run");

    let output = output.expect("the example starts");
    let stdout = String::from_utf8(output.stdout).expect("examples print UTF-8");
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    let verdict = "verdict: 240 events were taken by kinesis:orders";
    assert_eq!(stdout.lines().last(), Some(verdict), "{stdout}");
}

#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_not_there_ends_the_program_and_says_so() {
    let server = kinesis::Server::ferrokinesis().await;
    let mut command = Command::new(program("exporter"));
    command.args(["--sink", "kinesis:nowhere"]).envs([
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]);
    command.env("AWS_ENDPOINT_URL_KINESIS", format!("http://{}", server.address()));

    let output = spawn_blocking(move || command.output()).await.expect("the program was run");

    let output = output.expect("the example starts");
    let stdout = String::from_utf8(output.stdout).expect("examples print UTF-8");
    let stderr = String::from_utf8(output.stderr).expect("examples print UTF-8");
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("ends: sink refused the request: "), "{stdout}");
    assert!(stderr.starts_with("exporter: no scheduler is left, "), "{stderr}");
}

#[test]
fn what_is_no_event_or_too_large_is_told_and_counted_and_keeps_nothing_back() {
    let large = "x".repeat(2 * 1024 * 1024);
    let text = format!("{{\"order\":1}}\n{{\"order\":\n\"{large}\"\n\n{{\"order\":4}}\n");
    let events = file_with("some-events", &text);

    let ended = run("exporter", &["--events", &events]);

    let verdict = "verdict: every event arrived; arrived: 2, missing: 0, again: 0; left out: \
                   1 that are no events, 1 that are too large, in ";
    let buried = ended.last_line().strip_prefix(verdict).expect("a verdict");
    assert_eq!(std::fs::read_to_string(buried).ok(), Some(format!("\"{large}\"\n")));
    drop(std::fs::remove_file(buried));
    for told in [
        "event line-2 is not JSON, EOF while parsing a value at line 1 column 9: \"{\\\"order\\\":\"",
        "line-3 has 2097154 bytes, more than a record takes: it is in ",
    ] {
        assert!(ended.stdout.contains(told), "{told} in {}", ended.stdout);
    }
    assert_eq!(ended.code, Some(1));
}

#[test]
fn exporter_refuses_bad_input_in_one_sentence() {
    let malformed = file_with("events", "{\"a\":\n");
    let empty = file_with("no-events", "\n");
    let needs = if cfg!(feature = "aws") { "is not set" } else { "is in AWS" };
    let cases: [(&[&str], &str); 8] = [
        (&["--schedulers", "1"], "1 schedulers are out of range: 2 to 20"),
        (&["--ttl", "0"], "ttl 0ns is out of range: a ttl is 100 ms to a day"),
        (&["--store", "postgres://x"], "store \"postgres://x\" is not known"),
        (&["--events", "nowhere.ndjson"], "nowhere.ndjson cannot be read: "),
        (&["--events", &empty], "has no events in it"),
        (&["--events", &malformed], "no line is an event: "),
        (&["--sink", "kafka:x"], "sink \"kafka:x\" is not known"),
        (&["--sink", "kinesis:x"], needs),
    ];

    refused_in_one_sentence("exporter", &cases);

    for limit in ["-1", "many"] {
        let ended = run("exporter", &["flush", limit]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let told = format!("invalid value '{limit}' for '[LIMIT]': a limit is a number of events");
        assert!(ended.stderr.contains(&told), "{ended:?}");
    }
}

#[test]
fn nightly_job_refuses_bad_input_in_one_sentence() {
    let cases: [(&[&str], &str); 6] = [
        (&["--cron", "61 * * * *"], "cron expression \"61 * * * *\" cannot be read: "),
        (&["--cron", "at night"], "cron expression \"at night\" cannot be read: "),
        (&["--cron", "0 0 30 2 *"], "cron expression \"0 0 30 2 *\" has no time"),
        (&["--zone", "Europe/Atlantis"], "time zone \"Europe/Atlantis\": "),
        (&["--every", "0"], "interval 0ns is out of range: a millisecond to a thousand years"),
        (&["--every", "-1"], "interval -1.0 is not a length in seconds"),
    ];

    refused_in_one_sentence("nightly_job", &cases);
}

#[test]
fn shards_refuses_bad_input_in_one_sentence() {
    let workers = ": a number from 2 to 20, since one is killed and another stops";
    let shards = ": a number from 2 to 200, since two are merged";
    let ttl = ": a number of seconds from 0.1 to 86400";
    let name = ": a name of 1 to 128 letters, digits, \"_\", \".\" and \"-\", or an ARN, arn:";
    let long = "o".repeat(129);
    let cases: [(&[&str], &str); 25] = [
        (&["--workers", "1"], workers),
        (&["--workers", "1000000"], workers),
        (&["--workers", "-3"], workers),
        (&["--workers", "many"], workers),
        (&["--workers", ""], workers),
        (&["--shards", "1"], shards),
        (&["--shards", "201"], shards),
        (&["--shards", "70000"], shards),
        (&["--shards", "-1"], shards),
        (&["--shards", "2.5"], shards),
        (&["--ttl", "0"], ttl),
        (&["--ttl", "1e9"], ttl),
        (&["--ttl", "-1"], ttl),
        (&["--ttl", "nan"], ttl),
        (&["--ttl", "2s"], ttl),
        (&["--stream", ""], name),
        (&["--stream", "all orders"], name),
        (&["--stream", &long], name),
        (&["--stream", "arn:aws:sqs:eu-west-1:123456789012:orders"], name),
        (&["--stream", "orders"], if cfg!(feature = "aws") { "is not set" } else { "is in AWS" }),
        (
            &["--stream", "orders", "--shards", "3"],
            "'--stream <NAME>' cannot be used with '--shards <NUMBER>'",
        ),
        (&["--store", "postgres://x"], "store \"postgres://x\" is not known: it is \"memory\""),
        (&["--store", "dynamodb://h:1"], "names no table: it is \"dynamodb://HOST:PORT/TABLE\""),
        (&["--store", ""], "store \"\" is not known: it is \"memory\""),
        (&["--store", "redis://a:1,b:1,c:1"], "is a quorum, which keeps no records"),
    ];

    refused_in_one_sentence("shards", &cases);
}

#[test]
fn bad_input_is_refused_in_one_sentence() {
    let empty = file_with("empty", "");
    let malformed = file_with("malformed", "employee,amount\nAda,1.00\nAlan\n");
    let cases: [(&[&str], &str); 10] = [
        (&["--items", "nowhere.csv"], "nowhere.csv cannot be read: "),
        (&["--items", &empty], "has no payments in it"),
        (&["--items", &malformed], "line 3: \"Alan\" is not a payment"),
        (&["--workers", "0"], "0 workers are out of range: 2 to 100"),
        (&["--workers", "1000000"], "1000000 workers are out of range"),
        (&["--ttl", "0"], "ttl 0ns is out of range: a ttl is 100 ms to a day"),
        (&["--ttl", "1e9"], "ttl 1000000000s is out of range"),
        (&["--ttl", "-1"], "ttl -1.0 is not a length in seconds"),
        (&["--ttl", "nan"], "ttl NaN is not a length in seconds"),
        (&["--store", "postgres://x"], "store \"postgres://x\" is not known"),
    ];

    refused_in_one_sentence("singleton_job", &cases);
}

fn refused_in_one_sentence(example: &str, cases: &[(&[&str], &str)]) {
    for (arguments, sentence) in cases {
        let ended = run(example, arguments);

        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
        // Where an option is not understood, it is followed by the way to the others.
        let told = ended.stderr.split("\n\nUsage:").next().unwrap_or_default();
        let told = told.split("\n\nFor more").next().unwrap_or_default().trim_end();
        assert_eq!(told.lines().count(), 1, "{arguments:?}: {ended:?}");
        assert!(told.contains(sentence), "{arguments:?}: {ended:?}");
    }
}
