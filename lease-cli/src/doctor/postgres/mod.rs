//! The checks of PostgreSQL servers.
//!
//! Start with [`examine`]. The file `standbys.rs` measures how far standbys are behind, and `tls.rs` encrypts connections.

mod standbys;
mod tls;

use tokio_postgres::{Client, Config, Row};

use self::standbys::standbys;
use super::{Finding, Grade, clock};
use crate::exit::sentence;

/// Checks the servers of `url`. The URL may name a primary and its standbys.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let parameter = |name: &str| {
        parameters.split('&').find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
    };
    let table = parameter("table").unwrap_or("lease");
    let mode = parameter("sslmode").unwrap_or("prefer");
    let mut servers = Vec::new();
    let mut findings = Vec::new();
    for (host, url) in hosts(address) {
        match Server::ask(host, &format!("{url}?sslmode={mode}"), table).await {
            Ok(server) => servers.push(server),
            Err(error) => findings.push(Finding::unanswered(error)),
        }
    }
    findings.extend(role(&servers));
    if let Some(primary) = servers.iter().find(|server| !server.is_standby) {
        findings.push(persistence(&primary.commit, &primary.fsync));
        findings.push(schema(primary.has_table, table));
        findings.extend(standbys(&primary.client).await);
        findings.push(clock::compare(primary.ahead));
    }
    findings
}

/// A server that has answered.
struct Server {
    host: String,
    client: Client,
    is_standby: bool,
    is_paused: bool,
    commit: String,
    fsync: String,
    has_table: bool,
    /// The difference of its clock to that of this machine, in seconds.
    ahead: f64,
}

impl Server {
    async fn ask(host: String, url: &str, table: &str) -> Result<Self, String> {
        let row = async {
            let mut config: Config = url.parse()?;
            config.connect_timeout(super::PATIENCE);
            let (client, connection) = config.connect(tls::connector()).await?;
            // Ends with the client.
            drop(tokio::spawn(connection));
            let row = client.query_one(QUESTIONS, &[&table]).await?;
            Ok::<(Client, Row), tokio_postgres::Error>((client, row))
        };
        let (client, row) = row.await.map_err(|error| format!("{host}: {}", sentence(&error)))?;
        Ok(Self {
            host,
            client,
            is_standby: row.get(0),
            is_paused: row.get(1),
            commit: row.get(2),
            fsync: row.get(3),
            has_table: row.get(4),
            ahead: row.get::<_, f64>(5) - clock::seconds_since_1970(),
        })
    }
}

/// The hosts of `address`, each with a URL of its own.
fn hosts(address: &str) -> impl Iterator<Item = (String, String)> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("postgres", address));
    let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    let at = if login.is_empty() { "" } else { "@" };
    hosts
        .split(',')
        .map(move |host| (host.to_owned(), format!("{scheme}://{login}{at}{host}/{database}")))
}

fn role(servers: &[Server]) -> Vec<Finding> {
    const CHECK: &str = "role";
    let standbys = || servers.iter().filter(|server| server.is_standby);
    let names: Vec<&str> = standbys().map(|server| server.host.as_str()).collect();
    let mut findings = match servers.iter().find(|server| !server.is_standby) {
        Some(_) if names.is_empty() => vec![Finding::ok(CHECK, "the server is a primary")],
        Some(primary) => {
            let found = format!("{} is the primary of {}", primary.host, names.join(", "));
            vec![Finding::ok(CHECK, found)]
        }
        None if servers.is_empty() => Vec::new(),
        None => vec![Finding::bad(
            CHECK,
            Grade::Problem,
            format!("{} is a standby, which refuses leases", names.join(" and ")),
            "give the primary, or all hosts: postgres://USER@HOST,HOST/DATABASE",
        )],
    };
    findings.extend(standbys().filter(|server| server.is_paused).map(|server| {
        let found = format!("{} is paused: a failover to it forgets leases", server.host);
        Finding::bad("standbys", Grade::Warning, found, "on it, run SELECT pg_wal_replay_resume()")
    }));
    findings
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

// Only a standby answers `pg_is_wal_replay_paused`.
const QUESTIONS: &str = "SELECT pg_is_in_recovery(), \
    CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END, \
    current_setting('synchronous_commit'), current_setting('fsync'), to_regclass($1) IS NOT NULL, \
    extract(epoch FROM clock_timestamp())::float8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_gets_a_url_with_the_login() {
        let found: Vec<_> = hosts("postgres://user:p%40ss@one:1,two/leases").collect();

        let pair = |host: &str, url: &str| (host.to_owned(), url.to_owned());
        assert_eq!(
            found,
            [
                pair("one:1", "postgres://user:p%40ss@one:1/leases"),
                pair("two", "postgres://user:p%40ss@two/leases")
            ]
        );
    }
}
