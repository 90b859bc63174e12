//! A master behind Sentinels, for tests.

use std::time::Duration;

use crate::redis::{RedisServer, free_port, until};

/// A master, two replicas, and three Sentinels that watch over them, until it is dropped.
#[derive(Debug)]
#[non_exhaustive]
pub struct RedisSentinel {
    /// The first is the master to begin with.
    pub servers: Vec<RedisServer>,
    /// Who decides which it is.
    pub sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// What the master is called.
    pub const MASTER: &str = "leases";

    /// Sentinels that take no master for dead that stands still for a while.
    ///
    /// # Panics
    ///
    /// Where it does not come up.
    pub fn start() -> Self {
        Self::that_waits(Duration::from_mins(1), RedisServer::with)
    }

    /// Sentinels that soon have a dead master's place taken by a replica.
    ///
    /// # Panics
    ///
    /// Where it does not come up.
    pub fn that_promotes() -> Self {
        Self::promoting(RedisServer::with)
    }

    /// [`that_promotes`](Self::that_promotes), of the servers that `start` makes, given their
    /// options.
    ///
    /// # Panics
    ///
    /// Where it does not come up.
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
            let linked = |server: &RedisServer| {
                server.command("INFO replication").contains("master_link_status:up")
            };
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

    /// Where its Sentinels are.
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
