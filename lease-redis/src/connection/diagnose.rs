//! What is wrong with a server before the first lease is lost by it.

use std::collections::HashMap;

use redis::Value;

use crate::connection::{Link, Role};
use crate::error::Fault;

/// What a server says about itself.
#[derive(Debug)]
pub(crate) struct Health {
    /// This run of it: another after each restart.
    pub(crate) run: String,
    /// What its clock shows, in microseconds since 1970.
    pub(crate) time: Option<u64>,
}

/// What is allowed that usually is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    Refused,
    Accepted,
}

/// Asks a server about itself, once per connection, and refuses what cannot keep leases.
pub(crate) async fn diagnose(
    server: &str,
    link: &Link,
    role: Role,
    eviction: Eviction,
) -> Result<Health, Fault> {
    let info = link.query(&redis::cmd("INFO")).await;
    let info = info.map_err(|error| Fault::from_redis(server, &error))?;
    let mut texts = Vec::new();
    collect_texts(&info, &mut texts);

    let (mut run, mut time) = (String::new(), None);
    for text in &texts {
        let fields = fields(text);
        judge(server, &fields, role, eviction)?;
        if let Some(id) = fields.get("run_id") {
            (*id).clone_into(&mut run);
        }
        time = fields.get("server_time_usec").and_then(|micros| micros.parse().ok()).or(time);
    }
    if run.is_empty() {
        return Err(Fault::misconfigured(format!(
            "{server} does not tell its run id: fencing tokens need INFO as Redis answers it"
        )));
    }
    Ok(Health { run, time })
}

/// How many replicas are connected to `server`, as it says.
pub(crate) fn replicas(info: &Value) -> Option<usize> {
    let mut texts = Vec::new();
    collect_texts(info, &mut texts);
    texts.iter().find_map(|text| fields(text).get("connected_slaves")?.parse().ok())
}

fn judge(
    server: &str,
    fields: &HashMap<&str, &str>,
    role: Role,
    eviction: Eviction,
) -> Result<(), Fault> {
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let clustered = field("cluster_enabled") == "1" || field("redis_mode") == "cluster";

    if field("redis_mode") == "sentinel" {
        return Err(Fault::misconfigured(format!(
            "{server} is a Sentinel: connect through it by `RedisStore::sentinel`"
        )));
    }
    if clustered && role != Role::Cluster {
        return Err(Fault::misconfigured(format!(
            "{server} is part of a Cluster: connect to it by `RedisStore::cluster`; a quorum needs \
             independent servers"
        )));
    }
    if !clustered && role == Role::Cluster {
        return Err(Fault::misconfigured(format!(
            "{server} is not part of a Cluster: connect to it by `RedisStore::connect`"
        )));
    }
    if field("role") == "slave" {
        let master = format!("{}:{}", field("master_host"), field("master_port"));
        return Err(match role {
            Role::Standalone => Fault::misconfigured(format!(
                "{server} is a replica of {master}: name that, or connect through Sentinel"
            )),
            // It was promoted a moment ago, or will be asked again in a moment.
            Role::Sentinel | Role::Cluster => {
                Fault::unavailable(format!("{server} is a replica of {master} just now"))
            }
        });
    }
    let policy = field("maxmemory_policy");
    if eviction == Eviction::Refused && !policy.is_empty() && policy != "noeviction" {
        return Err(Fault::misconfigured(format!(
            "{server} has maxmemory-policy {policy}, which drops leases that are held when memory \
             runs out: set it to noeviction, or accept the risk by `with_eviction_accepted`"
        )));
    }
    Ok(())
}

/// A Cluster answers once per node.
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

    fn judged(info: &str, role: Role) -> String {
        let judged = judge("redis at a:1", &fields(info), role, Eviction::Refused);
        judged.map_or_else(|fault| fault.to_string(), |()| "healthy".to_owned())
    }

    #[test]
    fn a_server_that_cannot_keep_leases_is_refused_with_what_to_do() {
        let master = "role:master\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";
        assert_eq!(judged(master, Role::Standalone), "healthy");
        assert!(judged(master, Role::Cluster).contains("is not part of a Cluster"));

        let sentinel = "redis_mode:sentinel\r\n";
        assert!(
            judged(sentinel, Role::Standalone).contains("through it by `RedisStore::sentinel`")
        );

        let evicting = "role:master\r\nmaxmemory_policy:allkeys-lru\r\n";
        assert!(judged(evicting, Role::Standalone).contains("set it to noeviction"));

        let replica = "role:slave\r\nmaster_host:b\r\nmaster_port:2\r\n";
        assert!(judged(replica, Role::Standalone).contains("is a replica of b:2: name that"));

        let cluster = "role:master\r\ncluster_enabled:1\r\n";
        assert!(
            judged(cluster, Role::Standalone).contains("connect to it by `RedisStore::cluster`")
        );
        assert_eq!(judged(cluster, Role::Cluster), "healthy");
    }
}
