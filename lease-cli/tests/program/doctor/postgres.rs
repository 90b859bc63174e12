//! PostgreSQL: a missing table, standbys, rights.

use lease_test_servers::postgres::PostgresServer;

use super::{examine, finds};
use crate::place::until;

#[test]
fn missing_table_and_standby_are_found() {
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

#[test]
fn standby_that_lags_is_found() {
    let Some(server) = PostgresServer::start() else { return };
    let standby = server.standby();
    let url = format!("{}&create=true&timeout=60s", server.url());

    let (_, healthy) = examine(&url);
    standby.command("SELECT pg_wal_replay_pause()");
    until("the standby is paused", || {
        standby.command("SELECT pg_get_wal_replay_pause_state()") == "paused"
    });
    let (_, paused) = examine(&url);
    let both = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), server.port());
    let (_, of_both) = examine(&url.replace(&format!("127.0.0.1:{}", server.port()), &both));
    standby.command("SELECT pg_wal_replay_resume()");
    let (_, resumed) = examine(&url);

    finds(&healthy, "standbys", "warning", &["no standby is synchronous"]);
    finds(&paused, "standbys", "warning", &["at 127.0.0.1", "bytes behind", "paused replay"]);
    finds(&of_both, "role", "ok", &["is the primary of", &standby.port().to_string()]);
    finds(&of_both, "standbys", "warning", &["is paused", "pg_wal_replay_resume"]);
    finds(&of_both, "standbys", "warning", &["bytes behind"]);
    finds(&resumed, "standbys", "warning", &["no standby is synchronous"]);
}

#[test]
fn synchronous_standby_is_no_problem() {
    let Some(server) = PostgresServer::start() else { return };
    let _standby = server.standby();
    server.command("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.command("SELECT pg_reload_conf()");
    until("the standby is synchronous", || {
        server.command("SELECT sync_state FROM pg_stat_replication") == "sync"
    });

    let (_, lines) = examine(&format!("{}&create=true&timeout=60s", server.url()));

    finds(&lines, "standbys", "ok", &["one is synchronous"]);
}

#[test]
fn user_that_may_not_see_the_standbys_is_told_so() {
    let Some(server) = PostgresServer::start() else { return };
    let _standby = server.standby();
    server.command("CREATE ROLE plain LOGIN; GRANT CREATE ON SCHEMA public TO plain");

    let url = format!("{}&create=true&timeout=60s", server.url_of("plain", "postgres"));
    let (code, lines) = examine(&url);

    assert!(code < 2, "{lines:?}");
    finds(&lines, "standbys", "unknown", &["pg_monitor"]);
    finds(&lines, "table", "ok", &[]);
}
