//! `lease doctor`: each problem of a store is found, with a remedy.

use std::process::Command;
use std::time::Duration;

use lease_test_servers::postgres::PostgresServer;
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
    let line = lines.iter().find(|line| line[0] == check);
    let line = line.unwrap_or_else(|| panic!("no check {check}: {lines:?}"));
    assert_eq!(line[1], result, "{line:?}");
    for part in parts {
        assert!(line[2..].concat().contains(part), "{part:?} is not in {line:?}");
    }
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

#[test]
fn missing_persistence_and_wrong_eviction_policy_are_found() {
    if !available() {
        return;
    }
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::with(&options);

    let (code, lines) = examine(&server.url());

    assert_eq!(code, 1);
    finds(&lines, "persistence", "problem", &["no append-only file", "appendfsync always"]);
    finds(&lines, "eviction policy", "problem", &["allkeys-lru", "noeviction"]);

    let server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let (code, lines) = examine(&server.url());
    assert_eq!(code, 0);
    finds(&lines, "persistence", "warning", &["everysec", "appendfsync always"]);
}

#[test]
fn missing_rights_are_found() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    server.command("ACL SETUSER reader on >secret ~* &* +@read +ping +info +config +time");

    let (code, lines) = examine(&format!("redis://reader:secret@127.0.0.1:{}", server.port()));

    assert_eq!(code, 1);
    let denied =
        lines.iter().find(|line| line[1] == "problem" && line[2].contains("refused access"));
    assert!(denied.is_some_and(|line| line[3].len() > 10), "{lines:?}");
}

#[test]
fn replica_is_found() {
    if !available() {
        return;
    }
    let master = RedisServer::start();
    let port = master.port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    lease_test_servers::redis::until("the replica follows", || {
        replica.reports_replication("master_link_status:up")
    });

    let (code, lines) = examine(&replica.url());

    assert_eq!(code, 1);
    finds(&lines, "role", "problem", &["replica", &format!("127.0.0.1:{port}")]);
}

#[test]
fn clock_ahead_is_found() {
    let Some(server) = RedisServer::with_clock() else { return };
    server.set_clock("+120");

    let (_, lines) = examine(&server.url());

    finds(&lines, "clock", "warning", &["ahead", "NTP"]);
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

#[test]
fn file_system_in_memory_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(folder.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        lease_test_servers::tools::missing("the right to mount a tmpfs");
        return;
    }

    let (code, lines) = examine(&format!("sqlite://{}/leases.db", folder.path().display()));
    let unmounted = Command::new("umount").arg("-l").arg(folder.path()).status();

    assert!(unmounted.unwrap().success());
    assert_eq!(code, 0);
    finds(&lines, "file system", "warning", &["in memory", "local disk"]);
}

#[test]
fn missing_table_and_standby_are_found() {
    if !cfg!(feature = "postgres") {
        return;
    }
    // Servers of tests do not sync by default.
    let settings = ["fsync=on", "synchronous_commit=on"];
    let Some(server) = PostgresServer::with(&settings) else { return };

    let (code, lines) = examine(&server.url());
    assert_eq!(code, 1);
    finds(&lines, "reachable", "problem", &["create"]);
    finds(&lines, "table", "problem", &["does not exist", "create=true"]);

    // Long enough for a slow machine.
    let (code, lines) = examine(&format!("{}&create=true&timeout=60s", server.url()));
    assert_eq!(code, 0, "{lines:?}");
    for check in ["role", "persistence", "table", "rights"] {
        finds(&lines, check, "ok", &[]);
    }

    let standby = server.standby();
    let (code, lines) = examine(&standby.url());
    assert_eq!(code, 1);
    finds(&lines, "role", "problem", &["standby", "primary"]);
    let (_, lines) = examine(&server.url());
    finds(&lines, "standbys", "warning", &["synchronous_standby_names"]);
}
