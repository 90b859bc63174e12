//! Checks a server's settings when a connection opens, so that no wrong setting can lose a lease.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use crate::connection::connector::{Role, SharedConnection};
use crate::error::ServerFault;

#[derive(Debug)]
pub(crate) struct ServerInfo {
    pub(crate) run: String,
    /// The id of the server's replication, which changes with each promotion. Empty if the server reports
    /// none.
    pub(crate) replication: String,
    /// The minimum age of the run. Zero if the server was a replica during the run, or if an operator set its
    /// clock back to before the start.
    pub(crate) uptime: Duration,
    /// The server's time, in microseconds since 1970.
    pub(crate) time: Option<u64>,
    /// Whether `SET` takes `NX` and `GET` together, as Redis does since version 7.0.
    pub(crate) sets_and_gets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    Refused,
    Accepted,
}

pub(crate) async fn diagnose(
    server: &str,
    connection: &SharedConnection,
    role: Role,
    eviction: Eviction,
) -> Result<ServerInfo, ServerFault> {
    let info = connection.query(&redis::cmd("INFO")).await;
    let info = info.map_err(|error| ServerFault::from_redis(server, &error))?;
    let mut texts = Vec::new();
    collect_texts(&info, &mut texts);

    let (mut run, mut replication) = (String::new(), String::new());
    let (mut uptime, mut time, mut sets_and_gets) = (Duration::ZERO, None, true);
    for text in &texts {
        let fields = fields(text);
        check_info(server, &fields, role, eviction)?;
        if let Some(id) = fields.get("run_id") {
            (*id).clone_into(&mut run);
            uptime = uptime_of(&fields);
        }
        if let Some(id) = fields.get("master_replid") {
            (*id).clone_into(&mut replication);
        }
        if let Some((major, _)) = fields.get("redis_version").and_then(|it| it.split_once('.')) {
            sets_and_gets &= major.parse::<u32>().is_ok_and(|major| major >= 7);
        }
        time = fields.get("server_time_usec").and_then(|micros| micros.parse().ok()).or(time);
    }
    if run.is_empty() {
        return Err(ServerFault::misconfigured(format!(
            "{server} reports no run id: fencing tokens need the run id that Redis reports in INFO"
        )));
    }
    Ok(ServerInfo { run, replication, uptime, time, sets_and_gets })
}

/// Subtracts a second, because the server rounds its start and the current time down to seconds. Returns 0
/// for a promoted server, because it may lack the last writes of the former master.
fn uptime_of(fields: &HashMap<&str, &str>) -> Duration {
    let was_promoted = fields.get("second_repl_offset").is_some_and(|offset| *offset != "-1");
    let seconds = fields.get("uptime_in_seconds").and_then(|seconds| seconds.parse::<u64>().ok());
    match seconds {
        Some(seconds) if !was_promoted => Duration::from_secs(seconds.saturating_sub(1)),
        _ => Duration::ZERO,
    }
}

pub(crate) fn replicas(info: &Value) -> Option<usize> {
    let mut texts = Vec::new();
    collect_texts(info, &mut texts);
    texts.iter().find_map(|text| fields(text).get("connected_slaves")?.parse().ok())
}

fn check_info(
    server: &str,
    fields: &HashMap<&str, &str>,
    role: Role,
    eviction: Eviction,
) -> Result<(), ServerFault> {
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let clustered = field("cluster_enabled") == "1" || field("redis_mode") == "cluster";

    if field("redis_mode") == "sentinel" {
        return Err(ServerFault::misconfigured(format!(
            "{server} is a Sentinel: connect through it with `RedisStore::sentinel`"
        )));
    }
    if clustered && role != Role::Cluster {
        return Err(ServerFault::misconfigured(format!(
            "{server} is part of a Cluster: connect to it with `RedisStore::cluster`; a quorum needs \
             independent servers"
        )));
    }
    if !clustered && role == Role::Cluster {
        return Err(ServerFault::misconfigured(format!(
            "{server} is not part of a Cluster: connect to it with `RedisStore::connect`"
        )));
    }
    if field("role") == "slave" {
        let master = format!("{}:{}", field("master_host"), field("master_port"));
        return Err(match role {
            Role::Standalone => ServerFault::misconfigured(format!(
                "{server} is a replica of {master}: use that URL, or connect through Sentinel"
            )),
            Role::Sentinel | Role::Cluster => {
                ServerFault::unavailable(format!("{server} is currently a replica of {master}"))
            }
        });
    }
    let policy = field("maxmemory_policy");
    if eviction == Eviction::Refused && !policy.is_empty() && policy != "noeviction" {
        return Err(ServerFault::misconfigured(format!(
            "{server} has maxmemory-policy {policy}, which evicts held leases when memory runs out: \
             set it to noeviction, or accept the risk with `with_eviction_accepted`"
        )));
    }
    Ok(())
}

/// In a Cluster, the driver of the application's pool returns one answer per node.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::BulkString(bytes) => texts.push(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Map(entries) => entries.iter().for_each(|(_, item)| collect_texts(item, texts)),
        _ => (),
    }
}

fn fields(info: &str) -> HashMap<&str, &str> {
    info.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(info: &str, role: Role) -> String {
        let verdict = check_info("redis at a:1", &fields(info), role, Eviction::Refused);
        verdict.map_or_else(|fault| fault.to_string(), |()| "healthy".to_owned())
    }

    #[test]
    fn uptime_is_zero_after_promotion_or_backward_clock_step() {
        let uptime = |info| uptime_of(&fields(info));

        assert_eq!(uptime("uptime_in_seconds:61\r\n"), Duration::from_secs(60));
        assert_eq!(uptime("uptime_in_seconds:61\r\nsecond_repl_offset:-1\r\n").as_secs(), 60);
        assert_eq!(uptime("uptime_in_seconds:61\r\nsecond_repl_offset:99\r\n"), Duration::ZERO);
        assert_eq!(uptime("uptime_in_seconds:-3600\r\n"), Duration::ZERO);
        assert_eq!(uptime("uptime_in_seconds:0\r\n"), Duration::ZERO);
    }

    #[test]
    fn unsuitable_server_is_refused_with_advice() {
        let master = "role:master\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";
        assert_eq!(verdict(master, Role::Standalone), "healthy");
        assert!(verdict(master, Role::Cluster).contains("is not part of a Cluster"));

        let sentinel = "redis_mode:sentinel\r\n";
        assert!(
            verdict(sentinel, Role::Standalone).contains("through it with `RedisStore::sentinel`")
        );

        let evicting = "role:master\r\nmaxmemory_policy:allkeys-lru\r\n";
        assert!(verdict(evicting, Role::Standalone).contains("set it to noeviction"));

        let replica = "role:slave\r\nmaster_host:b\r\nmaster_port:2\r\n";
        assert!(verdict(replica, Role::Standalone).contains("is a replica of b:2: use that URL"));

        let cluster = "role:master\r\ncluster_enabled:1\r\n";
        assert!(
            verdict(cluster, Role::Standalone).contains("connect to it with `RedisStore::cluster`")
        );
        assert_eq!(verdict(cluster, Role::Cluster), "healthy");
    }
}
