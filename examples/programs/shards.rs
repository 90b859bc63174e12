//! The example `shards`: workers that join, are killed and stop.

#[cfg(unix)]
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::process::{Command, Stdio};

use lease_test_servers::dynamodb::Server;
#[cfg(all(unix, feature = "aws"))]
use lease_test_servers::kinesis;
use lease_test_servers::redis;
use tokio::task::spawn_blocking;

#[cfg(unix)]
use crate::program;
use crate::{Ended, refused_in_one_line, run};

#[test]
fn records_are_processed_in_order_while_workers_change() {
    let ended = run("shards", &[]);

    assert_verdict(&ended);
    let lines = [
        "3 workers share 12 shards",
        "worker-4 joins",
        "4 workers share 12 shards",
        "worker-2 is KILLED",
        "are merged into 14",
        "worker-1 has handed over all shards",
        "2 workers share 12 shards",
    ];
    let positions: Vec<_> = lines.iter().filter_map(|text| ended.stdout.find(text)).collect();
    assert!(positions.len() == lines.len() && positions.is_sorted(), "{positions:?}: {ended:?}");
    assert!(!ended.stdout.contains('\x1b'), "a pipe should get no control characters: {ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_shared_on_redis_and_dynamodb() {
    let dynamodb = Server::dynoxide().await;
    let redis = redis::available().then(redis::RedisServer::start);
    let mut stores = vec![format!("dynamodb://{}/leases", dynamodb.address())];
    stores.extend(redis.iter().map(|server| format!("redis://{}", server.address())));

    // Each run takes several seconds, so the runs are concurrent.
    let start = |store: String| spawn_blocking(move || run("shards", &["--store", &store]));
    let runs: Vec<_> = stores.into_iter().map(start).collect();

    for ended in runs {
        assert_verdict(&ended.await.expect("the program was run"));
    }
}

#[test]
fn two_workers_share_two_shards_with_a_short_ttl() {
    assert_verdict(&run("shards", &["--workers", "2", "--shards", "2", "--ttl", "0.5"]));
}

#[test]
fn more_workers_than_shards_process_every_record() {
    let ended = run("shards", &["--workers", "20", "--shards", "3", "--ttl", "0.5"]);

    assert_verdict(&ended);
    for line in ["21 workers share 3 shards", "is KILLED", "worker-1 has handed over all shards"] {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
}

fn assert_verdict(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let verdict = ended.last_line();
    assert!(verdict.starts_with("verdict: every record was processed, in order; "), "{ended:?}");
    assert!(verdict.contains("missing: 0, partition keys out of order: 0"), "{ended:?}");
}

#[cfg(unix)]
fn stop_when_printed(command: &mut Command, text: &str) -> Ended {
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
fn stopped_run_hands_over_and_has_no_verdict() {
    let mut command = Command::new(program("shards"));

    let ended = stop_when_printed(&mut command, "3 workers share 12 shards");

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("all workers have stopped"), "{ended:?}");
    assert_eq!(ended.last_line(), "verdict: none, since the run was stopped");
}

#[cfg(all(unix, feature = "aws"))]
#[tokio::test(flavor = "multi_thread")]
async fn kinesis_stream_is_read_until_sigterm() {
    let server = kinesis::Server::ferrokinesis().await;
    server.create_stream("orders", 4).await;
    let mut command = Command::new(program("shards"));
    command.args(["--stream", "orders", "--workers", "2"]).envs([
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]);
    command.env("AWS_ENDPOINT_URL_KINESIS", format!("http://{}", server.address()));

    let ended = spawn_blocking(move || stop_when_printed(&mut command, "have changed hands")).await;

    let ended = ended.expect("the program was run");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.last_line().ends_with("all workers have stopped"), "{ended:?}");
}

#[test]
fn shards_reports_bad_input_in_one_line() {
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
        (&["--store", "postgres://x"], "store URL \"postgres://x\" names no database"),
        (&["--store", "dynamodb://h:1"], "has no table name: use \"dynamodb://HOST:PORT/TABLE\""),
        (&["--store", ""], "store URL \"\" is empty"),
        (&["--store", "redis://a:1,b:1,c:1"], "is a quorum, which keeps no records"),
    ];

    refused_in_one_line("shards", &cases);
}
