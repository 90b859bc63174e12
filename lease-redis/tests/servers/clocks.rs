//! Servers whose clocks step. Rows are those of the README's table *What happens when*.

use std::time::Duration;

use lease_core::fence::Gate;
use lease_core::store::{Heartbeat, LeaseTable, LockStore};
use lease_core::{Change, Written};
use lease_redis::RedisQuorum;
use lease_test_servers::claims;
use lease_test_servers::redis::{PATIENT, RedisServer, until};

use crate::setting::{
    LEASE, TTL, assert_still_held, assert_superseded, beat, claim, eventually, has_lease, obtain,
    obtain_eventually, obtain_on_all, one, quorum, refused, servers, text, uptime, urls,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn three() -> Option<[RedisServer; 3]> {
    Some([RedisServer::with_clock()?, RedisServer::with_clock()?, RedisServer::with_clock()?])
}

async fn until_expired(server: &RedisServer) {
    eventually("expired early", async || (!has_lease(server)).then_some(())).await;
}

fn left(server: &RedisServer) -> Duration {
    server.lease_left("job").unwrap_or_default()
}

/// Row "the server's clock steps forward", on one server.
#[tokio::test]
async fn forward_step_of_a_server_causes_two_holders() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    assert!(refused(&store).await.holds(&grant));

    server.set_clock("+120");
    until_expired(&server).await;

    assert_superseded(&store, &grant).await;
}

/// Row "a slot moves to a server whose clock is ahead".
#[tokio::test]
async fn slot_moved_to_a_clock_ahead_causes_two_holders() {
    let (Some([from]), Some(to)) = (servers::<1>(), RedisServer::with_clock()) else { return };
    let store = one(&from).await;
    let grant = obtain(&store, "a").await;
    // MIGRATE moves the remaining time of a lock, but the end of a record. A Cluster keeps records.
    let written = store.update(&grant, &Change::new().set("a", 1)).await.unwrap();
    assert_eq!(written, Written::Applied);
    to.set_clock("+120");

    from.command(&format!("MIGRATE 127.0.0.1 {} {LEASE} 0 5000", to.port()));
    let nonce = grant.nonce.get().simple().to_string();
    assert_eq!(to.command(&format!("HGET {LEASE} granted")), nonce);
    until_expired(&to).await;

    assert_superseded(&one(&to).await, &grant).await;
}

/// Row "the server's clock steps forward", on a quorum.
#[tokio::test]
async fn lease_is_restored_after_a_forward_step_of_a_node() {
    let Some(servers) = three() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers[0].set_clock("+120");
    until_expired(&servers[0]).await;

    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    eventually("restored", async || has_lease(&servers[0]).then_some(())).await;
    assert_still_held(&store, &grant).await;
}

/// Row "the server's clock steps forward", on a quorum.
#[tokio::test]
async fn forward_step_of_a_majority_causes_two_holders() {
    let Some(servers) = three() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    for server in &servers[..2] {
        server.set_clock("+120");
        until_expired(server).await;
    }

    assert_superseded(&store, &grant).await;
}

#[tokio::test]
async fn forward_step_shortens_the_rejoin_delay_of_new_clients_only() {
    let Some(servers) = three() else { return };
    let builder = RedisQuorum::builder(urls(&servers)).with_max_ttl(HOUR).with_timeout(PATIENT);
    let store = builder.clone().connect().await.unwrap();
    assert!(store.obtain(&claim("a")).await.is_err());

    for server in &servers {
        server.set_clock("+7200");
    }

    obtain_eventually(&builder.connect().await.unwrap(), "a").await;
    let refused = store.obtain(&claim("b")).await.unwrap_err();
    assert!(text(&refused).contains("may have forgotten leases"), "{}", text(&refused));
}

/// A later client waits for `max_ttl` by its own clock. Then it records the age of the runs, so the next
/// client does not wait.
#[tokio::test]
async fn backward_step_delays_a_quorum_for_max_ttl_at_most() {
    let Some(servers) = three() else { return };
    let max_ttl = Duration::from_secs(3);
    let claim = || claims::claim(&claims::fresh_key("job"), "a", max_ttl);
    let builder = RedisQuorum::builder(urls(&servers)).with_max_ttl(max_ttl).with_timeout(PATIENT);
    let before = builder.clone().connect().await.unwrap();
    let votes = async |store: &RedisQuorum| {
        eventually("all nodes vote", async || {
            let claim = claim();
            store.obtain(&claim).await.ok()?;
            let key = claim.key.to_string();
            servers.iter().all(|server| server.lease_left(&key).is_some()).then_some(())
        })
        .await;
    };
    votes(&before).await;

    for server in &servers {
        server.set_clock("-3600");
        until("its clock is set back", || uptime(server) < 0);
    }

    assert!(before.obtain(&claim()).await.is_ok());
    let after = builder.clone().connect().await.unwrap();
    votes(&after).await;
    let next = builder.connect().await.unwrap();
    assert!(next.obtain(&claim()).await.is_ok());
}

/// Row "the server's clock steps back", on one server.
#[tokio::test]
async fn backward_step_of_a_server_prolongs_leases() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.set_clock("-3600");
    eventually("prolonged", async || (left(&server) > TTL).then_some(())).await;

    assert_still_held(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    let next = obtain_eventually(&store, "b").await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

#[tokio::test]
async fn backward_step_of_a_quorum_prolongs_leases() {
    let Some(servers) = three() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    for server in &servers {
        server.set_clock("-3600");
        eventually("prolonged", async || (left(server) > TTL).then_some(())).await;
    }

    assert_still_held(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    let next = obtain_eventually(&store, "b").await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

async fn connect(servers: &[RedisServer]) -> Box<dyn LockStore> {
    match servers {
        [server] => Box::new(one(server).await) as Box<dyn LockStore>,
        _ => Box::new(quorum(servers).await),
    }
}

/// A gate at the target of writes refuses the smaller token.
#[tokio::test]
async fn gate_refuses_tokens_after_lost_memory_and_a_clock_behind() {
    let Some(servers) = three() else { return };
    for needed in [1, 3] {
        for server in &servers {
            server.set_clock("+0");
            server.command("FLUSHALL");
        }
        let behind = Duration::from_secs(1800);
        // A late node receives the claim before its clock is set.
        let grant = obtain_on_all(&*connect(&servers[..needed]).await, &servers[..needed]).await;
        let gate = Gate::new(());
        gate.write(grant.token, |()| ()).unwrap();

        for server in &servers {
            server.set_clock("-3600");
            eventually("an hour back", async || {
                let left = left(server);
                (left > behind || !has_lease(server)).then_some(())
            })
            .await;
            server.command("FLUSHALL");
        }

        // A client that stays connected to a quorum proposes ever larger tokens.
        let next = obtain_eventually(&*connect(&servers[..needed]).await, "b").await;
        assert!(next.token < grant.token, "{} after {}", next.token, grant.token);
        assert!(gate.write(next.token, |()| ()).is_err(), "the gate accepted an old token");
    }
}

/// The holder stops relying on the lease in time, by its own clock.
#[tokio::test]
async fn release_frees_a_lease_prolonged_by_a_clock() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    server.set_clock("-3600");
    eventually("prolonged", async || (left(&server) > TTL).then_some(())).await;

    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    assert!(left(&server) <= TTL, "the next heartbeat did not correct the end");
    store.release(&grant, None).await.unwrap();

    assert!(!has_lease(&server));
}
