//! A server with leases of an earlier version, whose locks were hashes.

use lease_core::store::{LeaseTable, LockStore, Obtained, micros_since_1970};
use lease_test_servers::claims;
use lease_test_servers::redis::RedisServer;

use crate::setting::{LEASE, TTL, claim, obtain, one, servers};

const WEEK: &str = "604800000";

/// The token is an hour ahead of the clock.
fn write_earlier_lease(server: &RedisServer) -> u64 {
    let now = micros_since_1970();
    let (ends, token) = (now + 60_000_000, now + 3_600_000_000);
    let nonce = "2f1b6a52-8b7e-4d53-9f0e-0f2b54a7c1de";
    server.command(&format!(
        "HSET {LEASE} granted {nonce} lessee earlier ends {ends} token {token} sequence 3 last none"
    ));
    server.command(&format!("PEXPIRE {LEASE} {WEEK}"));
    token
}

#[tokio::test]
async fn lock_of_an_earlier_version_is_respected() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let token = write_earlier_lease(&server);

    let holder = claims::held(store.obtain(&claim("a")).await.unwrap());
    assert_eq!((holder.lessee.as_str(), holder.token.unwrap().get()), ("earlier", token));
    let holder = store.holder(&claim("a").key).await.unwrap().unwrap();
    assert_eq!((holder.lessee.as_str(), holder.token.unwrap().get()), ("earlier", token));

    server.command(&format!("HDEL {LEASE} ends"));
    let next = obtain(&store, "a").await;
    assert!(next.token.get() > token, "{} after {token}", next.token);
    assert_eq!(server.command(&format!("TYPE {LEASE}")), "string");
    store.release(&next, None).await.unwrap();
    let last = obtain(&store, "b").await;
    assert!(last.token > next.token, "{} after {}", last.token, next.token);
}

#[tokio::test]
async fn record_of_an_earlier_version_is_kept_for_ever() {
    let Some([server]) = servers() else { return };
    let token = write_earlier_lease(&server);
    server.command(&format!("HDEL {LEASE} ends"));
    server.command(&format!("HSET {LEASE}:attributes . 1 =number '{{\"N\":\"7\"}}'"));
    server.command("ZADD lease:index 0 job");

    let store = one(&server).await;

    assert_eq!(
        server.command(&format!("EVAL \"return redis.call('PTTL', KEYS[1]) + 1\" 1 {LEASE}")),
        "0"
    );
    let record = store.read(&claim("a").key).await.unwrap().unwrap();
    assert_eq!(record.attributes.get("number"), Some(&7.into()));
    let Obtained::Granted(grant, attributes) = store.obtain(&claim("a")).await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(attributes, record.attributes);
    assert!(grant.token.get() > token);
    assert_eq!(grant.ttl, TTL);
}

/// Scripts of the earlier version expect a hash.
#[tokio::test]
async fn earlier_version_refuses_lock_of_this_version() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let _grant = obtain(&store, "a").await;

    let answer = server.command(&format!("HMGET {LEASE} granted ends token"));

    assert!(answer.starts_with("WRONGTYPE"), "{answer}");
}
