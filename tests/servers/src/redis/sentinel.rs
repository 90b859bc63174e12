//! A master behind Sentinels, for tests.

use std::time::Duration;

use crate::redis::{RedisServer, free_port, until};

/// A master, two replicas, and three Sentinels that monitor the servers. A drop kills all of them.
#[derive(Debug)]
#[non_exhaustive]
pub struct RedisSentinel {
    /// The servers: the original master, then its replicas.
    pub servers: Vec<RedisServer>,
    /// The Sentinels, which decide which server is the master.
    pub sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// The name of the master.
    pub const MASTER: &str = "leases";

    /// Starts Sentinels that promote a replica after the master has been silent for a minute.
    ///
    /// # Panics
    ///
    /// Panics if the Sentinels do not agree on a master.
    pub fn start() -> Self {
        Self::that_waits(Duration::from_mins(1), RedisServer::with)
    }

    /// Starts Sentinels that promote a replica after the master has been silent for a second.
    ///
    /// # Panics
    ///
    /// Panics if the Sentinels do not agree on a master.
    pub fn that_promotes() -> Self {
        Self::promoting(RedisServer::with)
    }

    /// Starts Sentinels as [`that_promotes`](Self::that_promotes) does, but the closure `start`
    /// starts each server with the given options.
    ///
    /// # Panics
    ///
    /// Panics if the Sentinels do not agree on a master.
    pub fn promoting(start: impl FnMut(&[&str]) -> RedisServer) -> Self {
        Self::that_waits(Duration::from_secs(1), start)
    }

    fn that_waits(silence: Duration, mut start: impl FnMut(&[&str]) -> RedisServer) -> Self {
        let delay = ["--repl-diskless-sync-delay", "0"];
        let master = start(&delay);
        let of = ["--replicaof", &format!("127.0.0.1 {}", master.port())];
        let options = [delay, of].concat();
        let replicas = [start(&options), start(&options)];
        let sentinels = (0..3).map(|_| sentinel(master.port(), silence)).collect();
        let servers: Vec<_> = [master].into_iter().chain(replicas).collect();
        let started = Self { servers, sentinels };
        until("the replicas are linked", || {
            let linked = |server: &RedisServer| server.reports_replication("master_link_status:up");
            started.servers.iter().skip(1).all(linked)
        });
        until("the Sentinels know each other and the replicas", || {
            let command = format!("SENTINEL CKQUORUM {}", Self::MASTER);
            let ready = |sentinel: &RedisServer| {
                sentinel.command(&command).starts_with("OK 3 usable")
                    && sentinel.command("INFO sentinel").contains("slaves=2,sentinels=3")
            };
            started.sentinels.iter().all(ready)
        });
        started
    }

    /// The URLs of the Sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }
}

fn sentinel(master: u16, silence: Duration) -> RedisServer {
    let port = free_port();
    let mut sentinel = RedisServer::stopped("redis-sentinel", port, Vec::new());
    let name = RedisSentinel::MASTER;
    let configuration = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor {name} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {name} {}\nsentinel failover-timeout {name} 5000\n",
        silence.as_millis()
    );
    let file = sentinel.folder.join("sentinel.conf");
    std::fs::write(&file, configuration).expect("the Sentinel's configuration");
    sentinel.options = vec![file.to_string_lossy().into_owned()];
    sentinel.start_again();
    sentinel
}
