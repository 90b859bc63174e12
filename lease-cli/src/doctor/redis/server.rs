//! The checks of one Redis server.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, InfoDict, RedisError, RedisResult, cmd};

use super::address::Address;
use crate::doctor::{Finding, Grade, PATIENCE, clock};

/// A server that has answered `INFO`.
pub(super) struct Server {
    pub(super) connection: MultiplexedConnection,
    pub(super) info: InfoDict,
}

/// Whether a restart without data would let two processes hold one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    Needed,
    /// A server of a quorum does not vote for a while after its restart.
    NotNeeded,
}

/// Connects to a server.
pub(super) async fn connect(
    address: &Address,
    host: &str,
) -> Result<MultiplexedConnection, String> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let connection = async {
        Client::open(address.of(host))?.get_multiplexed_async_connection_with_config(&config).await
    };
    connection.await.map_err(|error| format!("{host}: {error}"))
}

impl Server {
    /// Connects to a server, and reads its state. The error names the server.
    pub(super) async fn open(address: &Address, host: &str) -> Result<Self, String> {
        let mut connection = connect(address, host).await?;
        let info: RedisResult<InfoDict> = cmd("INFO").query_async(&mut connection).await;
        let info = info.map_err(|error| format!("{host}: {error}"))?;
        Ok(Self { connection, info })
    }

    /// A field of `INFO`; empty if the server does not show it.
    pub(super) fn text(&self, name: &str) -> String {
        self.info.get(name).unwrap_or_default()
    }

    pub(super) fn is_master(&self) -> bool {
        self.text("role") == "master"
    }

    pub(super) fn role(&self) -> Finding {
        if self.is_master() {
            return Finding::ok("role", "the server is a master");
        }
        let (host, port) = (self.text("master_host"), self.text("master_port"));
        let remedy = format!("give the master, which is {host}:{port}, or use redis+sentinel://");
        let found = "the server is a replica, which refuses leases";
        Finding::bad("role", Grade::Problem, found, remedy)
    }

    /// Checks whether the server keeps its data, and deletes none.
    pub(super) async fn settings(&mut self, persistence: Persistence) -> Vec<Finding> {
        let mut findings = Vec::new();
        if persistence == Persistence::Needed {
            findings.push(self.persistence().await);
        }
        findings.push(eviction(&self.text("maxmemory_policy"), &self.text("maxmemory")));
        findings
    }

    pub(super) async fn clock(&mut self) -> Finding {
        let time: Result<(f64, f64), RedisError> =
            cmd("TIME").query_async(&mut self.connection).await;
        match time {
            Ok((seconds, micros)) => {
                clock::compare(seconds + micros / 1e6 - clock::seconds_since_1970())
            }
            Err(error) => Finding::unknown("clock", error),
        }
    }

    async fn persistence(&mut self) -> Finding {
        const CHECK: &str = "persistence";
        let remedy =
            "set appendonly yes and appendfsync always, or use redis+quorum:// with three servers";
        if self.text("aof_enabled") != "1" {
            let found = "the server keeps no append-only file: after a restart, two processes may hold one key";
            return Finding::bad(CHECK, Grade::Problem, found, remedy);
        }
        let mut ask = cmd("CONFIG");
        let answer: RedisResult<Vec<String>> =
            ask.arg("GET").arg("appendfsync").query_async(&mut self.connection).await;
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
