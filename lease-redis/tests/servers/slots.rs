//! Slots of a Cluster that move to another node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore, Obtained};
use lease_core::{Attributes, Change, LeaseKey, StoreErrorKind, Value, Written};
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, eventually, soon};
use lease_test_servers::redis::{PATIENT, RedisCluster, RedisServer, available};

use crate::setting::{TTL, locker, text};

struct Moving {
    cluster: RedisCluster,
    slot: u16,
    keys: Vec<LeaseKey>,
    store: RedisStore,
}

impl Moving {
    async fn start(count: usize) -> Option<Self> {
        if !available() {
            return None;
        }
        let cluster = RedisCluster::start(0);
        let key = |number: u32| LeaseKey::new(format!("job-{number}")).unwrap();
        let slot_of = |key: &LeaseKey| redis::cluster_routing::Slot::for_key(key.as_str());
        let here = |key: &LeaseKey| {
            let answer = cluster.nodes[0].command(&format!("HGET lease:{{{key}}} token"));
            !answer.starts_with("MOVED")
        };
        let mut all = (0..1_000_000).map(key);
        let first = all.find(here).unwrap();
        let same = all.filter(|key| slot_of(key) == slot_of(&first)).take(count - 1);
        let keys = std::iter::once(first.clone()).chain(same.collect::<Vec<_>>()).collect();
        let slot = cluster.nodes[0].command(&format!("CLUSTER KEYSLOT {first}")).parse().unwrap();
        let store = RedisStore::cluster(cluster.urls()).with_timeout(PATIENT);
        let store = store.connect().await.unwrap();
        Some(Self { cluster, slot, keys, store })
    }

    fn key(&self) -> &LeaseKey {
        &self.keys[0]
    }

    /// Afterwards, `from` redirects requests for keys that it no longer has to `to`.
    fn begin(&self, from: usize, to: usize) {
        let [from, to] = [from, to].map(|place| &self.cluster.nodes[place]);
        let slot = self.slot;
        ok(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.command("CLUSTER MYID")));
        ok(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.command("CLUSTER MYID")));
    }

    fn migrate(&self, name: &str, from: usize, to: usize) {
        let port = self.cluster.nodes[to].port();
        ok(&self.cluster.nodes[from], &format!("MIGRATE 127.0.0.1 {port} {name} 0 60000"));
    }

    fn finish(&self, from: usize, to: usize) {
        for key in self.keys.iter().cycle().take(2 * self.keys.len()) {
            for part in ["", ":attributes"] {
                let port = self.cluster.nodes[to].port();
                let name = format!("lease:{{{key}}}{part}");
                let migrate = format!("MIGRATE 127.0.0.1 {port} {name} 0 60000");
                let answer = self.cluster.nodes[from].command(&migrate);
                assert!(answer == "OK" || answer == "NOKEY", "{answer}");
            }
        }
        let id = self.cluster.nodes[to].command("CLUSTER MYID");
        for place in [to, from, 3 - to - from] {
            ok(&self.cluster.nodes[place], &format!("CLUSTER SETSLOT {} NODE {id}", self.slot));
        }
    }
}

fn ok(server: &RedisServer, words: &str) {
    assert_eq!(server.command(words), "OK", "{words}");
}

#[tokio::test]
async fn free_key_is_obtained_while_its_slot_moves() {
    let Some(moving) = Moving::start(15).await else { return };
    let earlier = claims::obtain(&moving.store, moving.key(), "a", TTL).await;
    moving.store.release(&earlier, None).await.unwrap();

    moving.begin(0, 1);

    for key in &moving.keys {
        let answer = moving.store.obtain(&claims::claim(key, "b", TTL)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{key}: {}", text(&error)));
        let (grant, _) = claims::granted(answer);
        let beat = moving.store.heartbeat(&grant, Beat::new(1)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
        moving.store.release(&grant, None).await.unwrap();
    }
}

#[tokio::test]
async fn lease_is_kept_while_its_slot_moves() {
    let Some(moving) = Moving::start(1).await else { return };
    let grant = claims::obtain(&moving.store, moving.key(), "a", TTL).await;
    let beat = async |number| moving.store.heartbeat(&grant, Beat::new(number)).await.unwrap();

    moving.begin(0, 1);
    assert_eq!(beat(1).await, Heartbeat::Extended);
    moving.migrate(&format!("lease:{{{}}}", moving.key()), 0, 1);
    assert_eq!(beat(2).await, Heartbeat::Extended);
    let other = moving.store.obtain(&claims::claim(moving.key(), "b", TTL)).await.unwrap();
    assert_eq!(claims::held(other).token, Some(grant.token));
    moving.finish(0, 1);
    assert_eq!(beat(3).await, Heartbeat::Extended);

    moving.store.release(&grant, None).await.unwrap();
    let next = claims::obtain(&moving.store, moving.key(), "b", TTL).await;
    assert!(next.token > grant.token);
}

#[tokio::test]
async fn watch_ends_when_its_slot_moves_and_next_watch_works() {
    let Some(moving) = Moving::start(1).await else { return };
    let grant = claims::obtain(&moving.store, moving.key(), "a", TTL).await;
    let freed = moving.store.watch(moving.key()).await.unwrap();

    moving.begin(0, 1);
    moving.finish(0, 1);

    soon(freed).await;
    let watch = async || moving.store.watch(moving.key()).await.ok();
    let freed = eventually("watched again", watch).await;
    moving.store.release(&grant, None).await.unwrap();
    soon(freed).await;
}

/// Tokens grow, and no two tasks hold one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_see_no_error_while_their_slot_moves_under_load() {
    let Some(moving) = Moving::start(4).await else { return };
    let (over, grants) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = async |key: &LeaseKey, lessee: &str| {
        while !over.load(Ordering::Relaxed) {
            let answer = moving.store.obtain(&claims::claim(key, lessee, TTL)).await;
            match answer.unwrap_or_else(|error| panic!("{key}: {}", text(&error))) {
                Obtained::Granted(grant, _) => {
                    moving.store.release(&grant, None).await.unwrap();
                    grants.fetch_add(1, Ordering::Relaxed);
                }
                Obtained::Held(_) => tokio::task::yield_now().await,
            }
        }
    };
    let waiters = async {
        let locker = locker(moving.store.clone(), TTL);
        let mut last = None;
        while !over.load(Ordering::Relaxed) {
            let lease = locker.wait_until_obtained(moving.key()).await.unwrap();
            assert!(last < Some(lease.token()), "{last:?}");
            last = Some(lease.token());
            lease.release().await.unwrap();
        }
    };
    let moves = async {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 1)] {
            let more_grants = async || {
                let (before, answer) = (grants.load(Ordering::Relaxed), "more grants");
                let more = async || (grants.load(Ordering::Relaxed) > before + 20).then_some(());
                eventually(answer, more).await;
            };
            more_grants().await;
            moving.begin(from, to);
            more_grants().await;
            moving.finish(from, to);
        }
        over.store(true, Ordering::Relaxed);
    };

    let loads = moving.keys.iter().flat_map(|key| [load(key, "a"), load(key, "b")]);
    tokio::join!(moves, waiters, futures_util::future::join_all(loads));
}

/// While the two keys of a record are on different nodes, no script can access both. The error contains
/// `TRYAGAIN`.
#[tokio::test]
async fn update_of_record_on_two_nodes_fails_until_both_keys_moved() {
    let Some(moving) = Moving::start(1).await else { return };
    let key = moving.key().clone();
    let short = RedisStore::cluster(moving.cluster.urls()).with_timeout(Duration::from_secs(1));
    let short = short.connect().await.unwrap();
    let grant = claims::obtain(&moving.store, &key, "a", TTL).await;
    let change = |number: i64| Change::new().set("number", number);
    assert_eq!(moving.store.update(&grant, &change(1)).await.unwrap(), Written::Applied);
    moving.begin(0, 1);
    moving.migrate(&format!("lease:{{{key}}}"), 0, 1);

    let refused = short.update(&grant, &change(2)).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Unavailable, "{}", text(&refused));
    assert!(refused.is_retryable());
    assert!(text(&refused).contains("TRYAGAIN"), "{}", text(&refused));
    // A lease consists of one key.
    let beat = moving.store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
    moving.store.release(&grant, None).await.unwrap();
    let answer = moving.store.obtain(&claims::claim(&key, "b", TTL)).await.unwrap();
    let (grant, attributes) = claims::granted(answer);
    assert_eq!(attributes.get("number"), Some(&Value::from(1)));

    moving.migrate(&format!("lease:{{{key}}}:attributes"), 0, 1);
    assert_eq!(moving.store.update(&grant, &change(3)).await.unwrap(), Written::Applied);
    moving.finish(0, 1);
    let record = moving.store.read(&key).await.unwrap().unwrap();
    assert_eq!(record.attributes.get("number"), Some(&Value::from(3)));
}

/// A claim with attributes writes two keys.
#[tokio::test]
async fn claim_with_attributes_fails_while_its_slot_moves() {
    let Some(moving) = Moving::start(1).await else { return };
    let key = moving.key().clone();
    let short = RedisStore::cluster(moving.cluster.urls()).with_timeout(Duration::from_secs(1));
    let short = short.connect().await.unwrap();
    let address = |address: &str| Attributes::from([("address".to_owned(), Value::from(address))]);
    let first = claims::claim(&key, "a", TTL).with_attributes(address("10.0.0.1"));
    let (grant, _) = claims::granted(moving.store.obtain(&first).await.unwrap());
    moving.store.release(&grant, None).await.unwrap();
    moving.begin(0, 1);
    moving.migrate(&format!("lease:{{{key}}}"), 0, 1);

    let second = claims::claim(&key, "b", TTL).with_attributes(address("10.0.0.2"));
    let refused = short.obtain(&second).await.unwrap_err();

    assert!(refused.is_retryable() && text(&refused).contains("TRYAGAIN"), "{}", text(&refused));
    let plain = claims::obtain(&moving.store, &key, "c", TTL).await;
    moving.store.release(&plain, None).await.unwrap();
    moving.finish(0, 1);
    let (_, attributes) = claims::granted(moving.store.obtain(&second).await.unwrap());
    assert_eq!(attributes, address("10.0.0.2"));
}
