//! `lease doctor`: each problem of a store is found, with a remedy.
//!
//! This file has the checks that every store gets, and the other files those of one kind of store.

#[cfg(feature = "dynamodb")]
mod dynamodb;
mod file_system;
#[cfg(feature = "postgres")]
mod postgres;
mod redis;

use std::time::Duration;

use lease_test_servers::proxy::Link;
use lease_test_servers::redis::{RedisServer, available, free_port};

use crate::place::{Place, code, text};

fn examine(url: &str) -> (i32, Vec<Vec<String>>) {
    let place = Place::new();
    let output = place.output(&["--store", url, "doctor"]);
    let lines = text(&output.stdout).lines();
    let lines = lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    (code(output.status), lines)
}

/// Fails unless the doctor has a line for `check` with `result`. The finding and the remedy of this
/// line must contain all of `parts`.
#[track_caller]
fn finds(lines: &[Vec<String>], check: &str, result: &str, parts: &[&str]) {
    let line = lines.iter().find(|line| {
        line[0] == check
            && line[1] == result
            && parts.iter().all(|part| line[2..].join(" ").contains(part))
    });
    let line = line.unwrap_or_else(|| panic!("no {check} {result} with {parts:?}: {lines:#?}"));
    assert_eq!(line[3] == "–", result == "ok", "a remedy for each problem: {line:?}");
}

#[test]
fn healthy_stores_have_no_problem() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!("sqlite://{}/leases.db", folder.path().display());

    let (code, lines) = examine(&url);

    assert_eq!(code, 0, "{lines:?}");
    for check in ["reachable", "rights", "listing", "file system"] {
        finds(&lines, check, "ok", &[]);
    }
    if available() {
        let server = RedisServer::with_append_only_file();
        let (code, lines) = examine(&server.url());
        assert_eq!(code, 0, "{lines:?}");
        for check in ["role", "persistence", "eviction policy", "clock"] {
            finds(&lines, check, "ok", &[]);
        }
    }
}

#[test]
fn unreachable_store_is_found() {
    let (code, lines) = examine(&format!("redis://127.0.0.1:{}", free_port()));

    assert_eq!(code, 1);
    finds(&lines, "reachable", "problem", &["127.0.0.1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_store_is_found() {
    if !available() {
        return;
    }
    let server = RedisServer::with_append_only_file();
    let link = Link::with_latency(server.address(), Duration::from_millis(150)).await.unwrap();

    // A slow machine adds to the latency, which must not exceed the timeout.
    let url = format!("{}/?timeout=60s", link.url());
    let (_, lines) = tokio::task::spawn_blocking(move || examine(&url)).await.unwrap();

    finds(&lines, "speed", "warning", &["--ttl"]);
}
