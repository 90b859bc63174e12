//! The record that a quorum's clients share on each node.

use std::time::Duration;

use lease_core::StoreErrorKind;
use lease_core::store::Grant;
use lease_redis::RedisQuorum;
use lease_test_servers::redis::{PATIENT, RedisServer, until};

use crate::memory_loss::{
    MAX_TTL, assert_held_while_nodes_wait, obtain_on_two, quorum_with_rejoin_delay,
};
use crate::setting::{TTL, assert_superseded, quorum_at, servers, text, uptime, urls};

const RECORD: &str = "lease:quorum";

/// Grants a lease on two of three nodes. Then replaces the first node by its replica, which lacks the lease.
async fn promoted() -> Option<([RedisServer; 4], Vec<String>, Grant)> {
    let mut servers = servers::<4>()?;
    let (nodes, replica) = servers.split_at(3);
    let [replica] = replica else { panic!("no replica") };
    replica.command(&format!("REPLICAOF 127.0.0.1 {}", nodes[0].port()));
    let synced = "master_link_status:up";
    until("the replica has its data", || replica.reports_replication(synced));
    until("up for the rejoin delay", || uptime(replica) > MAX_TTL.as_secs().cast_signed());
    let store = quorum_with_rejoin_delay(nodes).await;
    replica.hang();
    nodes[0].command("CLIENT KILL TYPE replica");
    let grant = obtain_on_two(&store, nodes, MAX_TTL).await;

    servers[0].kill();
    let replica = &servers[3];
    replica.go_on();
    replica.command("REPLICAOF NO ONE");
    let urls = [3, 1, 2].map(|place: usize| servers[place].url()).to_vec();
    Some((servers, urls, grant))
}

#[tokio::test]
async fn promoted_replica_does_not_vote() {
    let Some((_servers, urls, grant)) = promoted().await else { return };

    let store = RedisQuorum::builder(urls).with_max_ttl(MAX_TTL);
    let store = store.with_timeout(Duration::from_secs(2)).connect().await.unwrap();

    assert_held_while_nodes_wait(&store, &grant).await;
}

#[tokio::test]
async fn promoted_replica_without_rejoin_delay_votes_too_early() {
    let Some((_servers, urls, grant)) = promoted().await else { return };

    assert_superseded(&quorum_at(urls).await, &grant).await;
}

#[tokio::test]
async fn client_with_other_settings_is_refused_until_all_agree() {
    let Some(servers) = servers::<3>() else { return };
    let builder = RedisQuorum::builder(urls(&servers)).with_timeout(PATIENT);
    let first = builder.clone().connect().await.unwrap();

    for (other, settings) in [
        (builder.clone().with_max_ttl(TTL * 2), "max_ttl 120s and timeout"),
        (builder.clone().with_timeout(PATIENT * 2), "max_ttl 60s and timeout"),
    ] {
        let refused = other.connect().await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        let refused = text(&refused);
        assert!(refused.contains("has clients with max_ttl 60s and timeout"), "{refused}");
        assert!(refused.contains(&format!("this one has {settings}")), "{refused}");
        assert!(refused.contains(&format!("send `DEL {RECORD}` to each node")), "{refused}");
    }
    builder.clone().connect().await.unwrap();

    drop(first);
    for server in &servers {
        server.command(&format!("DEL {RECORD}"));
    }
    builder.with_max_ttl(TTL * 2).connect().await.unwrap();
}

#[tokio::test]
async fn settings_of_another_prefix_may_differ() {
    let Some(servers) = servers::<3>() else { return };
    let builder = RedisQuorum::builder(urls(&servers)).with_timeout(PATIENT);
    builder.clone().connect().await.unwrap();

    builder.with_prefix("other:").with_max_ttl(TTL * 2).connect().await.unwrap();
}

#[tokio::test]
async fn node_with_a_foreign_record_is_named() {
    let Some(servers) = servers::<3>() else { return };
    servers[1].command(&format!("SET {RECORD} mine"));

    let refused = RedisQuorum::connect(urls(&servers)).await.unwrap_err();

    assert!(text(&refused).contains(&servers[1].port().to_string()), "{}", text(&refused));
}

/// The holder can extend its lease.
#[tokio::test]
async fn client_joins_while_memory_is_full() {
    let Some(servers) = servers::<3>() else { return };
    for server in &servers {
        server.command("CONFIG SET maxmemory 1");
    }

    RedisQuorum::connect(urls(&servers)).await.unwrap();

    for server in &servers {
        assert_eq!(server.command(&format!("HGET {RECORD} max_ttl")), "form 2, 60000");
    }
}

/// The locks of an earlier version have another format.
#[tokio::test]
async fn clients_of_an_earlier_version_are_refused() {
    let Some(servers) = servers::<3>() else { return };
    for server in &servers {
        server.command(&format!("HSET {RECORD} max_ttl 60000 timeout 2000"));
    }
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();

    let refused = RedisQuorum::builder(urls).connect().await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{}", text(&refused));
    assert!(text(&refused).contains("clients of an earlier version"), "{}", text(&refused));
}
