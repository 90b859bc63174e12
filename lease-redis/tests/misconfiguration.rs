//! What is wrong with a server is said when it is first used, with what to do.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use lease_core::{Beat, Claim, Lessee, LockStore, Nonce, Obtained, StoreError, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::redis::{
    PATIENT, RedisCluster, RedisSentinel, RedisServer, available, independent,
};

use StoreErrorKind::{Denied, Misconfigured, Unavailable};

#[track_caller]
fn says<T: std::fmt::Debug>(refused: Result<T, StoreError>, kind: StoreErrorKind, what: &str) {
    let error = refused.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();

    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(what), "{text}");
    assert!(![".:", ": :", "..", ".;"].iter().any(|doubled| text.contains(doubled)), "{text}");
}

#[tokio::test]
async fn a_policy_that_drops_leases_is_refused_unless_it_is_accepted() {
    if !available() {
        return;
    }
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);

        says(RedisStore::connect(&server.url()).await, Misconfigured, "set it to noeviction");

        let accepted = RedisStore::builder(server.url()).with_eviction_accepted();
        accepted.connect().await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_is_refused_and_its_master_named() {
    if !available() {
        return;
    }
    let master = RedisServer::start();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", master.port())]);
    let said = format!("is a replica of 127.0.0.1:{}", master.port());

    says(RedisStore::connect(&replica.url()).await, Misconfigured, &said);

    let nodes = [master.url(), replica.url(), RedisServer::start().url()];
    says(RedisQuorum::connect(nodes).await, Misconfigured, &said);
}

#[tokio::test]
async fn the_same_server_given_twice_is_refused_by_whatever_name() {
    if !available() {
        return;
    }
    let servers = independent(2);
    let again = servers[0].url().replace("127.0.0.1", "localhost");
    let urls = [servers[0].url(), servers[1].url(), again];

    says(RedisQuorum::connect(urls).await, Misconfigured, "are the same server");
}

#[tokio::test]
async fn a_cluster_given_as_one_server_is_refused_and_the_other_way_round() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let server = RedisServer::start();

    says(RedisStore::connect(&cluster.urls()[0]).await, Misconfigured, "RedisStore::cluster");
    says(RedisQuorum::connect(cluster.urls()).await, Misconfigured, "is part of a Cluster");
    let as_cluster = RedisStore::cluster([server.url()]).connect().await;
    says(as_cluster, Misconfigured, "connect to it by `RedisStore::connect`");
}

#[tokio::test]
async fn a_user_without_the_rights_is_told_and_one_with_those_of_the_readme_is_not() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let rights = include_str!("../README.md").lines().find(|line| line.starts_with("ACL SETUSER"));
    let allowed = server.command(&rights.unwrap().replace("a-password", "secret"));
    assert_eq!(allowed, "OK");
    server.command("ACL SETUSER poor on >secret ~lease:* &lease:* +info +ping");
    let url = |user| format!("redis://{user}:secret@127.0.0.1:{}", server.port());

    let poor = RedisStore::connect(&url("poor")).await.unwrap();
    says(poor.obtain(&claim()).await, Denied, "Access rights");
    let wrong = server.url().replace("redis://", "redis://leases:wrong@");
    says(RedisStore::connect(&wrong).await, Denied, "password");

    let store = RedisStore::connect(&url("leases")).await.unwrap();
    let freed = store.watch(&claim().key).await.unwrap();
    let Obtained::Granted(grant, _) = store.obtain(&claim()).await.unwrap() else { panic!() };
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    store.release(&grant, None).await.unwrap();
    freed.await;
}

#[tokio::test]
async fn server_of_another_protocol_is_refused_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            drop(reader.read_line(&mut String::new()));
            drop((&stream).write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let refusal = format!("redis at {address} does not answer like a Redis server");

    says(RedisStore::connect(&format!("redis://{address}")).await, Misconfigured, &refusal);
}

#[tokio::test]
async fn sentinel_given_as_a_server_is_refused() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    let urls = servers.urls();

    says(
        RedisStore::connect(&urls[0]).await,
        Misconfigured,
        "is a Sentinel: connect through it by",
    );
    says(RedisQuorum::connect(urls.clone()).await, Misconfigured, "is a Sentinel");
    let server = servers.servers[0].url();
    let as_sentinel = RedisStore::sentinel([server], RedisSentinel::MASTER).connect().await;
    says(as_sentinel, Misconfigured, "is no Sentinel");
    let unknown = RedisStore::sentinel(urls, "unknown").connect().await;
    says(unknown, Misconfigured, "no master \"unknown\"");
}

#[tokio::test]
async fn fewer_replicas_than_asked_for_are_refused() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    let connect = |replicas| {
        let builder = RedisStore::builder(servers.servers[0].url());
        builder.with_timeout(PATIENT).with_replicas(replicas).connect()
    };
    let refusal = format!("127.0.0.1:{} has 2 replicas, not 5", servers.servers[0].port());

    says(connect(5).await, Unavailable, &refusal);
    connect(2).await.unwrap();
}

#[tokio::test]
async fn silent_hosts_are_named_with_their_addresses() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    server.hang();
    let refused = RedisStore::connect(&server.url()).await;
    says(refused, Unavailable, &format!("redis at 127.0.0.1:{}", server.port()));

    let servers = RedisSentinel::start();
    servers.sentinels.iter().for_each(RedisServer::hang);
    for sentinel in &servers.sentinels {
        let refused = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER).connect().await;
        says(refused, Unavailable, &format!("Sentinel at 127.0.0.1:{}", sentinel.port()));
    }

    let cluster = RedisCluster::start(0);
    cluster.nodes.iter().for_each(RedisServer::hang);
    for node in &cluster.nodes {
        let refused = RedisStore::cluster(cluster.urls()).connect().await;
        says(refused, Unavailable, &format!("127.0.0.1:{}", node.port()));
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let missing = RedisStore::connect("redis://127.0.0.1:1").await;

    says(missing, Unavailable, "redis at 127.0.0.1:1");
}

#[tokio::test]
async fn values_out_of_range_are_refused_before_anything_is_sent() {
    let prefix = RedisStore::builder("redis://127.0.0.1:1").with_prefix("a{b}");
    says(prefix.connect().await, Misconfigured, "brace");
    says(RedisStore::connect("http://127.0.0.1").await, Misconfigured, "not valid");
    says(RedisQuorum::connect(Vec::<String>::new()).await, Misconfigured, "name three or five");
    says(
        RedisStore::sentinel(Vec::<String>::new(), "m").connect().await,
        Misconfigured,
        "Sentinel",
    );
    let login = RedisStore::builder("redis://127.0.0.1:1").with_master_login("a", "b");
    says(login.connect().await, Misconfigured, "in the URL");
}

fn claim() -> Claim {
    let ttl = std::time::Duration::from_secs(30);
    Claim::new("job".parse().unwrap(), Lessee::new("a").unwrap(), Nonce::random(), ttl)
}
