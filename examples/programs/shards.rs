//! `shards`: a stream whose readers come and go.

#[cfg(unix)]
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::process::{Command, Stdio};

use lease_tests::dynamodb::Server;
#[cfg(all(unix, feature = "aws"))]
use lease_tests::kinesis;
use lease_tests::redis;
use tokio::task::spawn_blocking;

#[cfg(unix)]
use crate::program;
use crate::{Ended, refused_in_one_sentence, run};

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
