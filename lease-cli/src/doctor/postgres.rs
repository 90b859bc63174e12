//! The checks of a PostgreSQL server.

use tokio_postgres::{Client, Error, NoTls};

use super::{Finding, Grade, clock, seconds_since_1970};

/// Checks the server that the leases are on. Uses no TLS.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let table = parameters.split('&').find_map(|one| one.strip_prefix("table=")).unwrap_or("lease");
    match ask(address, table).await {
        Ok(findings) => findings,
        Err(error) => vec![Finding::unknown("settings", error)],
    }
}

async fn ask(address: &str, table: &str) -> Result<Vec<Finding>, Error> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    // Ends with the client.
    drop(tokio::spawn(connection));
    let row = client
        .query_one(
            "SELECT pg_is_in_recovery(), current_setting('synchronous_commit'), current_setting('fsync'), \
             to_regclass($1) IS NOT NULL, extract(epoch FROM clock_timestamp())::float8",
            &[&table],
        )
        .await?;
    let (is_standby, commit, fsync): (bool, String, String) = (row.get(0), row.get(1), row.get(2));
    let mut findings =
        vec![role(Role::of(is_standby)), persistence(&commit, &fsync), schema(row.get(3), table)];
    findings.extend(standbys(&client).await);
    findings.push(clock(row.get::<_, f64>(4) - seconds_since_1970()));
    Ok(findings)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Primary,
    Standby,
}

impl Role {
    fn of(is_in_recovery: bool) -> Self {
        if is_in_recovery { Self::Standby } else { Self::Primary }
    }
}

fn role(role: Role) -> Finding {
    match role {
        Role::Primary => Finding::ok("role", "the server is a primary"),
        Role::Standby => Finding::bad(
            "role",
            Grade::Problem,
            "the server is a standby, which refuses leases",
            "give the primary, or all hosts: postgres://USER@HOST,HOST/DATABASE",
        ),
    }
}

fn persistence(commit: &str, fsync: &str) -> Finding {
    if fsync == "off" || commit == "off" {
        return Finding::bad(
            "persistence",
            Grade::Problem,
            format!("fsync {fsync}, synchronous_commit {commit}: a crash forgets leases"),
            "set fsync and synchronous_commit to on",
        );
    }
    Finding::ok("persistence", format!("fsync {fsync}, synchronous_commit {commit}"))
}

fn schema(exists: bool, table: &str) -> Finding {
    if exists {
        return Finding::ok("table", format!("{table} exists"));
    }
    let remedy = "add create=true to the URL once, as a user that may create tables";
    Finding::bad("table", Grade::Problem, format!("the table {table} does not exist"), remedy)
}

/// Checks how far the standbys are behind. Only a user with rights to monitor sees it.
async fn standbys(client: &Client) -> Vec<Finding> {
    const CHECK: &str = "standbys";
    let asked = client
        .query(
            "SELECT application_name, sync_state, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0)::float8, \
             coalesce(extract(epoch FROM replay_lag), 0)::float8 FROM pg_stat_replication",
            &[],
        )
        .await;
    let rows = match asked {
        Ok(rows) => rows,
        Err(error) => return vec![Finding::unknown(CHECK, error)],
    };
    if rows.is_empty() {
        return Vec::new();
    }
    let lags = rows.iter().map(|row| (row.get::<_, f64>(2), row.get::<_, f64>(3)));
    let lagging = lags.filter(|(bytes, seconds)| *bytes > LAG_BYTES || *seconds > LAG).count();
    if lagging > 0 {
        let found = format!("{lagging} of {} standbys lag: a failover forgets leases", rows.len());
        let remedy = "repair the standby, or set synchronous_standby_names";
        return vec![Finding::bad(CHECK, Grade::Warning, found, remedy)];
    }
    if rows.iter().all(|row| row.get::<_, &str>(1) == "async") {
        let found = "no standby is synchronous: a failover may forget the last leases";
        return vec![Finding::bad(CHECK, Grade::Warning, found, "set synchronous_standby_names")];
    }
    vec![Finding::ok(CHECK, format!("{} follow", rows.len()))]
}

/// Seconds.
const LAG: f64 = 5.0;
const LAG_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
