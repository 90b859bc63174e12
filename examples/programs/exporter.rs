//! The example `exporter`: a killed scheduler, and the commands of an operator.

#[cfg(feature = "aws")]
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;

use lease_core::Locker;
use lease_redis::RedisStore;
#[cfg(feature = "aws")]
use lease_test_servers::kinesis;
use lease_test_servers::redis;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::{Ended, file_with, program, refused_in_one_line, run};

#[test]
fn killed_scheduler_loses_no_event() {
    assert_all_arrived(&run("exporter", &[]));
}

fn assert_all_arrived(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let verdict = "verdict: every event arrived; arrived: 240, missing: 0, repeated: ";
    assert!(ended.last_line().starts_with(verdict), "{ended:?}");
    let killed = ended.stdout.find("KILLED while it sends").expect("a scheduler is killed");
    assert!(
        ended.stdout[killed..].contains("sends 15 events"),
        "another scheduler sends: {ended:?}"
    );
    // The killed scheduler had not removed the events that it had sent.
    assert!(!ended.last_line().ends_with("repeated: 0"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_on_redis_arrive_and_operator_commands_are_checked() {
    if !redis::available() {
        return;
    }
    let server = redis::RedisServer::start();
    let store = server.url();
    let url = store.clone();
    let ended = spawn_blocking(move || run("exporter", &["--store", &url])).await;
    assert_all_arrived(&ended.expect("the program was run"));

    let commands = [
        ("pending", "0 events are pending", 0),
        ("emergency", "the intake is stopped: Operator", 0),
        ("put tea/hour 3", "refused: tea/hour, the intake is stopped", 1),
        ("open", "the intake is open", 0),
        ("put tea/hour 3", "tea/hour is in bucket ", 0),
        ("put tea/day -3", "tea/day is in bucket ", 0),
        ("put tea/fortnight 3", "tea/fortnight is in bucket ", 0),
        ("put tea/week 3", "tea/week is in bucket ", 0),
        ("disable", "refused: export cannot be disabled while the intake is open", 1),
        ("emergency", "the intake is open", 0),
        ("stop", "the intake is stopped", 0),
        ("put tea/hour 4", "refused: tea/hour, the intake is stopped", 1),
        ("disable", "export is disabled", 0),
        ("flush", "0 events were sent: export is disabled", 1),
        ("send", "no job was scheduled: export is disabled", 0),
        ("open", "refused: the intake cannot be opened while export is disabled", 1),
        ("enable", "export is enabled", 0),
        ("open", "the intake is open", 0),
        ("flush 7", "0 events were sent", 0),
    ];
    for (command, line, code) in commands {
        let ended = operate(&store, command).await;
        assert_eq!(ended.code, Some(code), "{command}: {ended:?}");
        assert!(ended.last_line().starts_with(line), "{command}: {ended:?}");
    }

    // Once a bucket is closed, the exporter sends its counts, and reports other values.
    let mut output = String::new();
    while operate(&store, "list").await.last_line() != "0 buckets" {
        let ended = operate(&store, "send").await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        output.push_str(&ended.stdout);
    }
    assert!(output.contains(" 1 came from buckets"), "{output}");
    for reason in [
        "drops tea/fortnight, Some(\"3\"): it cannot be parsed: period \"fortnight\" is not one of",
        "drops tea/day, Some(\"-3\"): it cannot be parsed: \"-3\" is not a count",
    ] {
        assert!(output.contains(reason), "{reason} in {output}");
    }
    assert!(!output.contains("tea/week"), "{output}");

    operate(&store, "put tea/day 1").await;
    assert_eq!(operate(&store, "list").await.last_line(), "1 buckets");
    assert_eq!(operate(&store, "delete").await.last_line(), "1 buckets and events were deleted");
    assert_eq!(operate(&store, "list").await.last_line(), "0 buckets");
    let emergency = operate(&store, "emergency").await;
    assert_eq!(emergency.last_line(), "the intake is stopped: Operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_is_refused_while_a_process_exports() {
    if !redis::available() {
        return;
    }
    let server = redis::RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let locker = Locker::new(store).with_lessee("scheduler-7".parse().expect("a lessee"));
    let key = "orders/export".parse().expect("a key");
    for command in ["enable", "open", "put tea/hour 3"] {
        assert_eq!(operate(&server.url(), command).await.code, Some(0), "{command}");
    }
    let lease = locker.obtain(&key).await.expect("an answer").into_lease().expect("a free key");

    let refused = operate(&server.url(), "delete").await;

    let line = "refused: the intake is stopped, but nothing was deleted: scheduler-7 has the lease";
    assert_eq!((refused.last_line(), refused.code), (line, Some(1)), "{refused:?}");
    assert_eq!(operate(&server.url(), "list").await.last_line(), "1 buckets");
    lease.release().await.expect("a release");
    let deleted = operate(&server.url(), "delete").await;
    assert_eq!(deleted.last_line(), "1 buckets and events were deleted", "{deleted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduler_survives_and_reports_an_outage_of_its_store() {
    if !redis::available() {
        return;
    }
    let mut server = redis::RedisServer::with_append_only_file();
    for command in ["enable", "open"] {
        assert_eq!(operate(&server.url(), command).await.code, Some(0), "{command}");
    }
    let file = file_with("after-an-outage", "");
    let mut command = Command::new(program("exporter"));
    command.args(["--store", &server.url(), "scheduler", "scheduler-1", &file]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut scheduler = command.spawn().expect("the example starts");
    let mut lines = BufReader::new(scheduler.stdout.take().expect("a pipe")).lines();

    // A sent event shows that the scheduler has connected.
    assert_eq!(operate(&server.url(), "put tea/hour 3").await.code, Some(0));
    until_printed(&mut lines, "sends 1 events").await;
    server.kill();
    let retry = until_printed(&mut lines, "retries: ").await;
    server.start_again();
    assert_eq!(operate(&server.url(), "put tea/hour 4").await.code, Some(0));
    until_printed(&mut lines, "sends 1 events").await;

    assert!(retry.contains("did not answer"), "{retry}");
    drop(scheduler.stdin.take());
    let ended = timeout(LIMIT, scheduler.wait()).await.expect("an end").expect("a child");
    assert_eq!(ended.code(), Some(0));
}

async fn until_printed(lines: &mut Lines<BufReader<ChildStdout>>, words: &str) -> String {
    let mut printed = Vec::new();
    let found = async {
        while let Some(line) = lines.next_line().await.expect("examples print UTF-8") {
            if line.contains(words) {
                return Some(line);
            }
            printed.push(line);
        }
        None
    };
    let found = timeout(LIMIT, found).await.ok().flatten();
    assert!(found.is_some(), "{words:?} is not in {printed:?}");
    found.expect("checked above")
}

async fn operate(store: &str, command: &str) -> Ended {
    let (store, command) = (store.to_owned(), command.to_owned());
    let program = move || {
        let mut words = vec!["--store", store.as_str()];
        words.extend(command.split(' '));
        run("exporter", &words)
    };
    spawn_blocking(program).await.expect("the program was run")
}

#[cfg(feature = "aws")]
async fn export_to(server: &kinesis::Server, words: &[&str]) -> Output {
    let mut command = Command::new(program("exporter"));
    command.args(words).kill_on_drop(true).envs([
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]);
    command.env("AWS_ENDPOINT_URL_KINESIS", format!("http://{}", server.address()));
    let output = timeout(LIMIT, command.output()).await.expect("it ends");
    output.expect("the example starts")
}

#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_in_a_kinesis_stream() {
    let server = kinesis::Server::ferrokinesis().await;
    server.create_stream("orders", 2).await;

    let output = export_to(&server, &["--sink", "kinesis:orders"]).await;

    let stdout = String::from_utf8(output.stdout).expect("examples print UTF-8");
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    let verdict = "verdict: kinesis:orders accepted 240 events";
    assert_eq!(stdout.lines().last(), Some(verdict), "{stdout}");
}

#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn missing_stream_ends_the_program_with_an_error() {
    let server = kinesis::Server::ferrokinesis().await;
    let redis = redis::available().then(redis::RedisServer::start);
    let url = redis.as_ref().map(redis::RedisServer::url);
    let sink = ["--sink", "kinesis:nowhere"];
    for store in ["memory"].into_iter().chain(url.as_deref()) {
        let output = export_to(&server, &[&sink[..], &["--store", store]].concat()).await;

        let stdout = String::from_utf8(output.stdout).expect("examples print UTF-8");
        let stderr = String::from_utf8(output.stderr).expect("examples print UTF-8");
        assert_eq!(output.status.code(), Some(2), "{stdout}");
        assert!(stdout.contains("ends: sink refused the request: "), "{stdout}");
        assert!(stderr.starts_with("exporter: no scheduler is left, "), "{stderr}");
    }

    let Some(url) = url else { return };
    let words = [&sink[..], &["--store", &url, "flush"]].concat();
    let output = export_to(&server, &words).await;
    let stdout = String::from_utf8(output.stdout).expect("examples print UTF-8");
    let line = "0 events were sent, others stay pending: sink refused the request: ";
    assert!(stdout.lines().last().is_some_and(|last| last.starts_with(line)), "{stdout}");
    assert_eq!(output.status.code(), Some(1), "{stdout}");
}

#[test]
fn bad_and_too_large_lines_are_reported_and_others_arrive() {
    let large = "x".repeat(2 * 1024 * 1024);
    let text = format!("{{\"order\":1}}\n{{\"order\":\n\"{large}\"\n\n{{\"order\":4}}\n");
    let events = file_with("some-events", &text);

    let ended = run("exporter", &["--events", &events]);

    let verdict = "verdict: every event arrived; arrived: 2, missing: 0, repeated: 0; dropped: \
                   1 that are not events, 1 that are too large, in ";
    let dead_letters = ended.last_line().strip_prefix(verdict).expect("a verdict");
    assert_eq!(std::fs::read_to_string(dead_letters).ok(), Some(format!("\"{large}\"\n")));
    drop(std::fs::remove_file(dead_letters));
    for line in [
        "event line-2 is not JSON, EOF while parsing a value at line 1 column 9: \"{\\\"order\\\":\"",
        "line-3 is not sent: it has 2097154 bytes, the limit for a record with its key is 1048576: moved to ",
    ] {
        assert!(ended.stdout.contains(line), "{line} in {}", ended.stdout);
    }
    assert_eq!(ended.code, Some(1));
}

#[test]
fn equal_lines_are_separate_events_and_non_utf8_is_dropped() {
    let events = file_with("equal-events", "{\"order\":1}\n{\"order\":\"?\"}\n{\"order\":1}\n");
    let text = std::fs::read(&events).expect("the file is there");
    let bytes: Vec<_> = text.iter().map(|byte| if *byte == b'?' { 0xff } else { *byte }).collect();
    std::fs::write(&events, bytes).expect("the file can be written");

    let ended = run("exporter", &["--events", &events]);

    let verdict = "verdict: every event arrived; arrived: 2, missing: 0, repeated: 0; dropped: \
                   1 that are not events";
    assert_eq!(ended.last_line(), verdict, "{ended:?}");
    let why = "line 2 is not UTF-8: \"{\\\"order\\\":\\\"\u{fffd}\\\"}\"";
    assert!(ended.stdout.contains(why), "{ended:?}");
    assert_eq!(ended.code, Some(1));
}

#[test]
fn exporter_reports_bad_input_in_one_line() {
    let malformed = file_with("events", "{\"a\":\n");
    let empty = file_with("no-events", "\n");
    let needs = if cfg!(feature = "aws") { "is not set" } else { "is in AWS" };
    let cases: [(&[&str], &str); 8] = [
        (&["--schedulers", "1"], "1 schedulers are out of range: 2 to 20"),
        (&["--ttl", "0"], "ttl 0ns is out of range: a ttl is 100 ms to a day"),
        (&["--store", "postgres://x"], "store \"postgres://x\" is not known"),
        (&["--events", "nowhere.ndjson"], "nowhere.ndjson cannot be read: "),
        (&["--events", &empty], "has no events"),
        (&["--events", &malformed], "no line is an event: "),
        (&["--sink", "kafka:x"], "sink \"kafka:x\" is not known"),
        (&["--sink", "kinesis:x"], needs),
    ];

    refused_in_one_line("exporter", &cases);

    for limit in ["-1", "many"] {
        let ended = run("exporter", &["flush", limit]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let line = format!("invalid value '{limit}' for '[LIMIT]': a limit is a number of events");
        assert!(ended.stderr.contains(&line), "{ended:?}");
    }
}

/// Long enough for each step on a busy machine.
const LIMIT: Duration = Duration::from_mins(5);
