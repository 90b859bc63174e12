//! A Redis Cluster.

use std::process::Command;

use super::server::RedisServer;
use super::until;

/// A Cluster of masters with some replicas each. A drop kills its nodes.
#[derive(Debug)]
#[non_exhaustive]
pub struct RedisCluster {
    /// The nodes: masters first, then replicas.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three masters, with `replicas` replicas each.
    ///
    /// # Panics
    ///
    /// Panics if the Cluster does not form.
    pub fn start(replicas: usize) -> Self {
        Self::started_by(replicas, RedisServer::with)
    }

    /// Starts a Cluster as [`start`](Self::start) does, but the closure `start` starts each server
    /// with given options.
    ///
    /// # Panics
    ///
    /// Panics if the Cluster does not form.
    pub fn started_by(replicas: usize, mut start: impl FnMut(&[&str]) -> RedisServer) -> Self {
        let nodes: Vec<_> =
            (0..3 * (1 + replicas)).map(|_| start(&Self::options(replicas))).collect();
        let ports: Vec<_> = nodes.iter().map(RedisServer::port).collect();
        Self::of(nodes, &ports, &["--cluster-replicas", &replicas.to_string()])
    }

    /// With replicas, the Cluster replaces a failed master after two seconds.
    pub(crate) fn options(replicas: usize) -> [&'static str; 6] {
        let timeout = if replicas == 0 { "60000" } else { "2000" };
        [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            timeout,
            "--repl-diskless-sync-delay",
            "0",
        ]
    }

    /// redis-cli joins the nodes at `ports`, with further options.
    ///
    /// # Panics
    ///
    /// Panics if the Cluster does not form.
    pub(crate) fn of(nodes: Vec<RedisServer>, ports: &[u16], further: &[&str]) -> Self {
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(ports.iter().map(|port| format!("127.0.0.1:{port}")));
        create.args(further).arg("--cluster-yes");
        let created = create.output().expect("redis-cli");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let cluster = Self { nodes };
        until("the cluster is whole", || {
            let whole =
                |node: &RedisServer| node.command("CLUSTER INFO").contains("cluster_state:ok");
            cluster.nodes.iter().all(whole)
        });
        cluster
    }

    /// The URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }
}
