//! The checks of Redis servers: one, or the servers of a quorum.

use redis::aio::MultiplexedConnection;
use redis::{Client, InfoDict, RedisError, RedisResult, cmd};

use super::{Finding, Grade, clock, seconds_since_1970};

/// Checks each server of `url`.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let Some((scheme, rest)) = url.split_once("://") else { return Vec::new() };
    let rest = rest.split('?').next().unwrap_or_default();
    let (login, places) = rest.rsplit_once('@').unwrap_or(("", rest));
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let (scheme, kind) = match scheme.split_once('+') {
        Some((scheme, _quorum)) => (scheme, Kind::OfQuorum),
        None => (scheme, Kind::Single),
    };
    let mut findings = Vec::new();
    for place in places.split(',') {
        match server(&format!("{scheme}://{login}{place}"), kind).await {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::unknown("settings", error)),
        }
    }
    findings
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    OfQuorum,
}

async fn server(url: &str, kind: Kind) -> RedisResult<Vec<Finding>> {
    let mut connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    let info: InfoDict = cmd("INFO").query_async(&mut connection).await?;
    let text = |name: &str| info.get::<String>(name).unwrap_or_default();
    let mut findings = vec![role(&text("role"), &text("master_host"), &text("master_port"))];
    if kind == Kind::Single {
        findings.push(persistence(&mut connection, &text("aof_enabled")).await);
    }
    findings.push(eviction(&text("maxmemory_policy"), &text("maxmemory")));
    findings.extend(replicas(&info));
    let time: Result<(f64, f64), RedisError> = cmd("TIME").query_async(&mut connection).await;
    findings.push(match time {
        Ok((seconds, micros)) => clock(seconds + micros / 1e6 - seconds_since_1970()),
        Err(error) => Finding::unknown("clock", error),
    });
    Ok(findings)
}

fn role(role: &str, host: &str, port: &str) -> Finding {
    if role == "master" {
        return Finding::ok("role", "the server is a master");
    }
    let remedy = format!("give the master, which is {host}:{port}, or use redis+sentinel://");
    Finding::bad("role", Grade::Problem, "the server is a replica, which refuses leases", remedy)
}

async fn persistence(connection: &mut MultiplexedConnection, append_only: &str) -> Finding {
    const CHECK: &str = "persistence";
    let remedy =
        "set appendonly yes and appendfsync always, or use redis+quorum:// with three servers";
    if append_only != "1" {
        let found =
            "the server keeps no append-only file: after a restart, two processes may hold one key";
        return Finding::bad(CHECK, Grade::Problem, found, remedy);
    }
    let mut ask = cmd("CONFIG");
    let answer: RedisResult<Vec<String>> =
        ask.arg("GET").arg("appendfsync").query_async(connection).await;
    match answer.as_deref() {
        Ok([_, sync]) if sync == "always" => Finding::ok(CHECK, "appendfsync always"),
        Ok([_, sync]) => {
            let found =
                format!("appendfsync {sync}: a crash may forget the leases of the last second");
            Finding::bad(CHECK, Grade::Warning, found, remedy)
        }
        Ok(_) => Finding::unknown(CHECK, "the server does not show appendfsync"),
        Err(error) => Finding::unknown(CHECK, error),
    }
}

fn eviction(policy: &str, limit: &str) -> Finding {
    const CHECK: &str = "eviction policy";
    if policy == "noeviction" {
        return Finding::ok(CHECK, "noeviction");
    }
    if policy.is_empty() {
        return Finding::unknown(CHECK, "the server does not show maxmemory-policy");
    }
    let (grade, when) = match limit {
        "0" | "" => (Grade::Warning, "as soon as maxmemory is set"),
        _ => (Grade::Problem, "if memory is full"),
    };
    let found = format!("maxmemory-policy {policy}: the server deletes leases {when}");
    Finding::bad(CHECK, grade, found, "set maxmemory-policy noeviction")
}

/// Checks how far the replicas are behind.
fn replicas(info: &InfoDict) -> Vec<Finding> {
    let count: usize = info.get("connected_slaves").unwrap_or(0);
    let lags = (0..count).filter_map(|number| {
        let state: String = info.get(&format!("slave{number}"))?;
        let lag = state.split(',').find_map(|field| field.strip_prefix("lag="))?.parse().ok()?;
        Some((state.contains("state=online"), lag))
    });
    let lagging: Vec<(bool, u64)> = lags.filter(|(online, lag)| !online || *lag > LAG).collect();
    if count == 0 {
        return Vec::new();
    }
    if lagging.is_empty() {
        return vec![Finding::ok("replicas", format!("{count} follow"))];
    }
    let found = format!("{} of {count} replicas lag: a failover forgets leases", lagging.len());
    vec![Finding::bad("replicas", Grade::Warning, found, "repair the replicas, or their network")]
}

/// Seconds. A replica acknowledges every second.
const LAG: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_that_deletes_leases_is_a_problem() {
        assert_eq!(eviction("noeviction", "100").grade, Grade::Ok);
        assert_eq!(eviction("volatile-ttl", "0").grade, Grade::Warning);
        assert_eq!(eviction("volatile-ttl", "1000000").grade, Grade::Problem);
    }
}
