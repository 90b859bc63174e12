//! Servers with wrong settings: `connect` fails, and its error has advice.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use lease_core::store::{Beat, Claim, LockStore, Nonce, Obtained};
use lease_core::{Lessee, StoreError, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::redis::{
    PATIENT, RedisCluster, RedisSentinel, RedisServer, available, independent,
};

use StoreErrorKind::{Denied, Misconfigured, Unavailable};

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(
    refused: Result<T, StoreError>,
    kind: StoreErrorKind,
    what: &str,
) {
    let error = refused.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();

    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(what), "{text}");
    assert!(![".:", ": :", "..", ".;"].iter().any(|doubled| text.contains(doubled)), "{text}");
}

#[tokio::test]
async fn evicting_policy_is_refused_unless_accepted() {
    if !available() {
        return;
    }
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);

        assert_refused(
            RedisStore::connect(&server.url()).await,
            Misconfigured,
            "set it to noeviction",
        );

        let accepted = RedisStore::builder(server.url()).with_eviction_accepted();
        accepted.connect().await.unwrap();
    }
}

#[tokio::test]
async fn replica_is_refused_with_the_name_of_its_master() {
    if !available() {
        return;
    }
    let master = RedisServer::start();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", master.port())]);
    let expected = format!("is a replica of 127.0.0.1:{}", master.port());

    assert_refused(RedisStore::connect(&replica.url()).await, Misconfigured, &expected);

    let nodes = [master.url(), replica.url(), RedisServer::start().url()];
    assert_refused(RedisQuorum::connect(nodes).await, Misconfigured, &expected);
}

#[tokio::test]
async fn server_given_twice_is_refused_under_any_name() {
    if !available() {
        return;
    }
    let servers = independent(2);
    let again = servers[0].url().replace("127.0.0.1", "localhost");
    let urls = [servers[0].url(), servers[1].url(), again];

    assert_refused(RedisQuorum::connect(urls).await, Misconfigured, "are the same server");
}

#[tokio::test]
async fn cluster_and_standalone_server_are_not_interchangeable() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let server = RedisServer::start();

    assert_refused(
        RedisStore::connect(&cluster.urls()[0]).await,
        Misconfigured,
        "RedisStore::cluster",
    );
    assert_refused(
        RedisQuorum::connect(cluster.urls()).await,
        Misconfigured,
        "is part of a Cluster",
    );
    let as_cluster = RedisStore::cluster([server.url()]).connect().await;
    assert_refused(as_cluster, Misconfigured, "connect to it with `RedisStore::connect`");
}

#[tokio::test]
async fn user_without_rights_is_denied_with_advice() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let rights = include_str!("../README.md").lines().find(|line| line.starts_with("ACL SETUSER"));
    let allowed = server.command(&rights.unwrap().replace("a-password", "secret"));
    assert_eq!(allowed, "OK");
    server.command("ACL SETUSER poor on >secret ~lease:* &lease:* +info +ping");
    let url = |user| format!("redis://{user}:secret@127.0.0.1:{}", server.port());

    assert_refused(RedisStore::connect(&url("poor")).await, Denied, "Access rights");
    let wrong = server.url().replace("redis://", "redis://leases:wrong@");
    assert_refused(RedisStore::connect(&wrong).await, Denied, "password");

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

    assert_refused(
        RedisStore::connect(&format!("redis://{address}")).await,
        Misconfigured,
        &refusal,
    );
}

#[tokio::test]
async fn sentinel_given_as_a_server_is_refused() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    let urls = servers.urls();

    assert_refused(
        RedisStore::connect(&urls[0]).await,
        Misconfigured,
        "is a Sentinel: connect through it with",
    );
    assert_refused(RedisQuorum::connect(urls.clone()).await, Misconfigured, "is a Sentinel");
    let server = servers.servers[0].url();
    let as_sentinel = RedisStore::sentinel([server], RedisSentinel::MASTER).connect().await;
    assert_refused(as_sentinel, Misconfigured, "is no Sentinel");
    let unknown = RedisStore::sentinel(urls, "unknown").connect().await;
    assert_refused(unknown, Misconfigured, "no master \"unknown\"");
}

#[tokio::test]
async fn server_with_too_few_replicas_is_refused() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    let connect = |replicas| {
        let builder = RedisStore::builder(servers.servers[0].url());
        builder.with_timeout(PATIENT).with_replicas(replicas).connect()
    };
    let refusal = format!("127.0.0.1:{} has 2 replicas, not 5", servers.servers[0].port());

    assert_refused(connect(5).await, Unavailable, &refusal);
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
    assert_refused(refused, Unavailable, &format!("redis at 127.0.0.1:{}", server.port()));

    let servers = RedisSentinel::start();
    servers.sentinels.iter().for_each(RedisServer::hang);
    for sentinel in &servers.sentinels {
        let refused = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER).connect().await;
        assert_refused(refused, Unavailable, &format!("Sentinel at 127.0.0.1:{}", sentinel.port()));
    }

    let cluster = RedisCluster::start(0);
    cluster.nodes.iter().for_each(RedisServer::hang);
    for node in &cluster.nodes {
        let refused = RedisStore::cluster(cluster.urls()).connect().await;
        assert_refused(refused, Unavailable, &format!("127.0.0.1:{}", node.port()));
    }
}

#[tokio::test]
async fn unreachable_server_is_named() {
    let missing = RedisStore::connect("redis://127.0.0.1:1").await;

    assert_refused(missing, Unavailable, "redis at 127.0.0.1:1");
}

#[tokio::test]
async fn options_out_of_range_are_refused_before_any_request() {
    let prefix = RedisStore::builder("redis://127.0.0.1:1").with_prefix("a{b}");
    assert_refused(prefix.connect().await, Misconfigured, "brace");
    assert_refused(RedisStore::connect("http://127.0.0.1").await, Misconfigured, "not valid");
    assert_refused(
        RedisQuorum::connect(Vec::<String>::new()).await,
        Misconfigured,
        "give the URLs of three or five",
    );
    assert_refused(
        RedisStore::sentinel(Vec::<String>::new(), "m").connect().await,
        Misconfigured,
        "Sentinel",
    );
    let login = RedisStore::builder("redis://127.0.0.1:1").with_master_login("a", "b");
    assert_refused(login.connect().await, Misconfigured, "in the URL");
}

fn claim() -> Claim {
    let ttl = std::time::Duration::from_secs(30);
    Claim::new("job".parse().unwrap(), Lessee::new("a").unwrap(), Nonce::random(), ttl)
}
