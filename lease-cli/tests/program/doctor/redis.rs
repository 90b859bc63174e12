//! Redis: one server, Sentinels, a Cluster, a quorum.

use lease_test_servers::proxy::{Flow, Link};
use lease_test_servers::redis::{
    RedisCluster, RedisSentinel, RedisServer, available, independent, until,
};

use super::{examine, finds};

#[test]
fn missing_persistence_and_wrong_eviction_policy_are_found() {
    if !available() {
        return;
    }
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::with(&options);

    let (code, lines) = examine(&server.url());

    assert_eq!(code, 1);
    finds(&lines, "persistence", "problem", &["no append-only file", "appendfsync always"]);
    finds(&lines, "eviction policy", "problem", &["allkeys-lru", "noeviction"]);

    let server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let (code, lines) = examine(&server.url());
    assert_eq!(code, 0);
    finds(&lines, "persistence", "warning", &["everysec", "appendfsync always"]);
}

#[test]
fn missing_rights_are_found() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    server.command("ACL SETUSER reader on >secret ~* &* +@read +ping +info +config +time");

    let (code, lines) = examine(&format!("redis://reader:secret@127.0.0.1:{}", server.port()));

    assert_eq!(code, 1);
    let denied =
        lines.iter().find(|line| line[1] == "problem" && line[2].contains("refused access"));
    assert!(denied.is_some_and(|line| line[3].len() > 10), "{lines:?}");
}

#[test]
fn replica_is_found() {
    if !available() {
        return;
    }
    let master = RedisServer::start();
    let port = master.port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    until("the replica follows", || replica.reports_replication("master_link_status:up"));

    let (code, lines) = examine(&replica.url());

    assert_eq!(code, 1);
    finds(&lines, "role", "problem", &["replica", &format!("127.0.0.1:{port}")]);
}

#[test]
fn clock_ahead_is_found() {
    let Some(server) = RedisServer::with_clock() else { return };
    server.set_clock("+120");

    let (_, lines) = examine(&server.url());

    finds(&lines, "clock", "warning", &["ahead", "NTP"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_lags_is_found() {
    if !available() {
        return;
    }
    let master = RedisServer::with_append_only_file();
    let link = Link::start(master.address()).await.unwrap();
    let port = link.address().port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    until("the replica follows", || replica.reports_replication("master_link_status:up"));
    let url = master.url();
    let examined = || {
        let url = url.clone();
        tokio::task::spawn_blocking(move || examine(&url))
    };

    let (_, healthy) = examined().await.unwrap();
    // The master sees the old acknowledgements of the replica.
    link.set_replies(Flow::Held);
    let (code, lagging) = examined().await.unwrap();

    finds(&healthy, "replicas", "ok", &["1 follow"]);
    assert_eq!(code, 0);
    let name = format!("127.0.0.1:{}", replica.port());
    finds(&lagging, "replicas", "warning", &[&name, "bytes behind", "failover", "network"]);
}

#[test]
fn each_server_behind_sentinels_is_asked() {
    if !available() {
        return;
    }
    let group = RedisSentinel::start();
    let name = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let sentinels: Vec<_> = group.sentinels.iter().map(name).collect();
    let url = format!("redis+sentinel://{}/{}", sentinels.join(","), RedisSentinel::MASTER);
    let (master, one, other) = (&group.servers[0], &group.servers[1], &group.servers[2]);
    one.command("CONFIG SET maxmemory-policy allkeys-lru");

    let (code, lines) = examine(&url);

    assert_eq!(code, 1);
    finds(&lines, "sentinels", "ok", &["3 Sentinels", &name(master)]);
    finds(&lines, "role", "ok", &[&name(master)]);
    finds(
        &lines,
        "persistence",
        "problem",
        &["all 3 servers", "append-only", "appendfsync always"],
    );
    finds(&lines, "eviction policy", "warning", &[&name(one), "allkeys-lru"]);
    finds(&lines, "eviction policy", "ok", &[&name(other)]);
    finds(&lines, "replicas", "ok", &[&name(master), "2 follow"]);
    finds(&lines, "replicas", "ok", &[&name(one), &name(other), "linked"]);

    // The replicas cannot synchronise again.
    master.command("ACL SETUSER default -psync -sync");
    master.command("CLIENT KILL TYPE replica");
    until("the link is down", || one.reports_replication("master_link_status:down"));
    let (_, lines) = examine(&url);
    finds(&lines, "replicas", "warning", &[&name(one), "link to the master", "is down"]);
}

#[test]
fn missing_sentinels_and_replicas_are_found() {
    if !available() {
        return;
    }
    let mut group = RedisSentinel::start();
    let name = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let sentinels: Vec<_> = group.sentinels.iter().map(name).collect();
    let url = |master: &str| format!("redis+sentinel://{}/{master}", sentinels.join(","));
    let dead = name(&group.servers[2]);
    group.servers[2].kill();
    group.sentinels[2].kill();

    let (_, lines) = examine(&url(RedisSentinel::MASTER));
    let (code, unknown) = examine(&url("other"));

    finds(&lines, "sentinels", "warning", &[&sentinels[2]]);
    finds(&lines, "replicas", "warning", &[&dead, "does not answer"]);
    assert_eq!(code, 1);
    finds(&unknown, "sentinels", "problem", &["no Sentinel names a master \"other\"", "26379"]);
}

#[test]
fn each_node_of_a_cluster_is_asked() {
    if !available() {
        return;
    }
    let mut cluster = RedisCluster::start(1);
    let name = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let url = format!("redis+cluster://{},{}", name(&cluster.nodes[0]), name(&cluster.nodes[1]));
    let replicas: Vec<_> = cluster.nodes.iter().filter(|node| !node.is_master()).collect();
    assert_eq!(replicas.len(), 3);
    until("the replicas are linked, and known to the first nodes", || {
        let knows =
            |node: &RedisServer| node.command("CLUSTER NODES").matches(" slave ").count() == 3;
        replicas.iter().all(|node| node.reports_replication("master_link_status:up"))
            && cluster.nodes[..2].iter().all(knows)
    });
    replicas[0].command("CONFIG SET maxmemory-policy volatile-ttl");
    let evicting = name(replicas[0]);

    let (code, lines) = examine(&url);

    assert_eq!(code, 1);
    finds(&lines, "cluster", "ok", &["3 masters with 3 replicas serve all 16384 slots"]);
    finds(&lines, "persistence", "problem", &["all 6 servers", "appendfsync always"]);
    finds(&lines, "eviction policy", "warning", &[&evicting, "volatile-ttl"]);
    finds(&lines, "replicas", "ok", &["1 follow"]);
    finds(&lines, "replicas", "ok", &[&evicting, "linked"]);

    let dead = cluster.nodes.iter().position(|node| !node.is_master()).unwrap();
    cluster.nodes[dead].kill();
    let (_, lines) = examine(&url);
    finds(&lines, "replicas", "warning", &[&name(&cluster.nodes[dead]), "does not answer"]);
}

#[test]
fn cluster_without_replicas_is_found() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let names: Vec<_> =
        cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();

    let (_, lines) = examine(&format!("redis+cluster://{}", names[0]));

    let parts = ["no replica can replace", &names[0], &names[1], &names[2], "add-node"];
    finds(&lines, "replicas", "warning", &parts);
}

#[test]
fn quorum_is_checked_as_a_whole() {
    if !available() {
        return;
    }
    let mut servers = independent(3);
    let names: Vec<_> = servers.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = |names: &[&str]| format!("redis+quorum://{}", names.join(","));
    let [one, two, three] = [&*names[0], &*names[1], &*names[2]];

    let (_, healthy) = examine(&url(&[one, two, three]));
    let (code, twice) = examine(&url(&[one, two, &one.replace("127.0.0.1", "localhost")]));
    servers[2].kill();
    let (_, two_left) = examine(&url(&[one, two, three]));

    finds(&healthy, "quorum", "ok", &["all 3 servers answer", "1 of them may fail"]);
    finds(&healthy, "eviction policy", "ok", &["all 3 servers", "noeviction"]);
    assert!(healthy.iter().all(|line| line[0] != "persistence"), "not needed: {healthy:?}");
    assert_eq!(code, 1);
    finds(&twice, "quorum", "problem", &[one, "localhost", "are one server"]);
    finds(&two_left, "quorum", "warning", &["2 of 3", three]);
}
