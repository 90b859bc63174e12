//! A cluster of three members, of which some hang or are killed.

use std::time::Duration;

use lease_core::store::{Beat, Grant, Heartbeat, LockStore};
use lease_core::{LeaseOptions, Locker, StoreErrorKind};
use lease_etcd::{EtcdRegister, EtcdStore};
use lease_test_servers::claims::{claim, eventually, granted, held, obtain, soon};
use lease_test_servers::etcd::{EtcdServer, PATIENT};

use crate::{SHORT, TTL, assert_refused, key};

use StoreErrorKind::{Denied, Unavailable};

async fn store(members: &[EtcdServer], timeout: Duration) -> EtcdStore {
    let register = eventually("connected", async || {
        let register = EtcdRegister::builder(members.iter().map(EtcdServer::endpoint));
        register.with_timeout(timeout).connect().await.ok()
    });
    EtcdStore::new(register.await)
}

/// After one request without an answer, all requests go to the next member.
#[tokio::test]
async fn hung_member_costs_one_request() {
    let Some(members) = EtcdServer::cluster(3, &[]) else { return };
    let store = store(&members, PATIENT).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let (used, others) = used_and_others(&members);
    used.hang();
    // If the hung member leads, the cluster first elects another leader.
    others[0].wait_until_ready();

    // The request ends by the time-out, or by a ping without an answer.
    let late = soon(store.heartbeat(&grant, Beat::new(1))).await;
    assert_refused(late, Unavailable, &used.endpoint());

    for number in 2..=20 {
        let beat = beat_elsewhere(&store, &grant, Beat::new(number), used).await;
        assert_kept(beat);
    }
    used.resume();
}

/// The caller's limit is shorter than the store's.
#[tokio::test]
async fn dropped_request_leaves_a_hung_member() {
    let Some(members) = EtcdServer::cluster(3, &[]) else { return };
    let store = store(&members, PATIENT).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let (used, others) = used_and_others(&members);
    used.hang();
    // If the hung member leads, the cluster first elects another leader.
    others[0].wait_until_ready();

    let dropped = tokio::time::timeout(SHORT, store.heartbeat(&grant, Beat::new(1))).await;

    assert!(dropped.is_err(), "{dropped:?}");
    let beat = beat_elsewhere(&store, &grant, Beat::new(2), used).await;
    assert_kept(beat);
    used.resume();
}

/// The locker drops a heartbeat after 5 s, and the connection's ping fails after 15 s. Either leaves the member:
/// `dropped_request_leaves_a_hung_member` is the test of the first alone.
#[tokio::test]
async fn lease_survives_a_hung_member_with_a_long_time_out() {
    let Some(members) = EtcdServer::cluster(3, &[]) else { return };
    let options = LeaseOptions::default().with_ttl(Duration::from_secs(120)).unwrap();
    let options = options.with_heartbeats_per_ttl(24).unwrap();
    let locker = Locker::new(store(&members, PATIENT).await).with_options(options);
    let lease = soon(locker.wait_until_obtained(&key())).await.unwrap();
    let (used, others) = used_and_others(&members);
    let requests = || others.iter().map(|member| member.requests("Txn")).sum::<u64>();
    let before = requests();

    used.hang();

    eventually("another member has a heartbeat", async || (requests() > before).then_some(()))
        .await;
    assert!(lease.is_held());
    soon(lease.release()).await.unwrap();
    used.resume();
}

/// The member that has the store's requests, and the others. A store uses the first member, or the next one if the
/// first refused the first request: a new cluster may still elect a leader.
fn used_and_others(members: &[EtcdServer]) -> (&EtcdServer, Vec<&EtcdServer>) {
    let is_used = |member: &&EtcdServer| member.requests("Txn") > 0;
    let (used, others): (Vec<_>, Vec<_>) = members.iter().partition(is_used);
    let [used] = used[..] else { panic!("the store has written on one member: {used:?}") };
    (used, others)
}

/// Repeats a heartbeat until a member other than `hung` answers. No request may go to `hung`.
async fn beat_elsewhere(
    store: &EtcdStore,
    grant: &Grant,
    beat: Beat,
    hung: &EtcdServer,
) -> Heartbeat {
    eventually("answered", async || {
        let answer = store.heartbeat(grant, beat).await;
        answer.map_err(|error| assert!(!error_text(&error).contains(&hung.endpoint()))).ok()
    })
    .await
}

#[tokio::test]
async fn killed_members_lose_no_lease_and_no_order_of_tokens() {
    let Some(mut members) = EtcdServer::cluster(3, &[]) else { return };
    let store = store(&members, PATIENT).await;
    let mut grant = obtain(&store, &key(), "a", TTL).await;

    for (place, lessee) in ["b", "c", "d"].into_iter().enumerate() {
        members[place].kill();
        let beat =
            eventually("answered", async || store.heartbeat(&grant, Beat::new(1)).await.ok()).await;
        assert_kept(beat);
        held(store.obtain(&claim(&key(), lessee, TTL)).await.unwrap());
        store.release(&grant, None).await.unwrap();
        let next = obtain(&store, &key(), lessee, TTL).await;
        assert!(next.token > grant.token);
        grant = next;
        members[place].start_again();
        members[place].wait_until_ready();
    }
}

#[tokio::test]
async fn minority_grants_nothing() {
    let Some(mut members) = EtcdServer::cluster(3, &[]) else { return };
    let all = store(&members, SHORT).await;
    let last = store(&members[2..], PATIENT).await;
    let claim = claim(&key(), "a", TTL);
    members[0].kill();
    members[1].kill();

    // The last member notices after an election time-out that it has no leader.
    let error = eventually("no leader", async || {
        let error = last.obtain(&claim).await.err();
        error.filter(|error| error_text(error).contains("no leader"))
    });

    assert_refused::<()>(Err(error.await), Unavailable, "no leader");
    assert_refused(last.holder(&key()).await, Unavailable, "no leader");
    assert!(all.obtain(&claim).await.is_err(), "a majority is down");
    members[0].start_again();
    let answer = eventually("answered", async || all.obtain(&claim).await.ok()).await;
    granted(answer);
}

#[tokio::test]
async fn first_connection_skips_members_that_are_down() {
    let Some(mut members) = EtcdServer::cluster(3, &[]) else { return };
    members[0].kill();

    // The cluster may need another leader first.
    let register = eventually("connected", async || {
        let register = EtcdRegister::builder(members.iter().map(EtcdServer::endpoint));
        register.with_timeout(PATIENT).connect().await.ok()
    });

    obtain(&EtcdStore::new(register.await), &key(), "a", TTL).await;
}

#[tokio::test]
async fn first_connection_skips_wrong_endpoints() {
    let Some(server) = EtcdServer::start() else { return };
    let endpoints = ["http://no host".to_owned(), server.endpoint()];

    let register = EtcdRegister::builder(endpoints).with_timeout(PATIENT).connect().await;

    obtain(&EtcdStore::new(register.unwrap()), &key(), "a", TTL).await;
}

/// Two of the endpoints are wrong: they lead to another cluster, which refuses all users but its own. One of them
/// follows whichever member the store uses first.
#[tokio::test]
async fn member_that_refuses_the_user_is_left() {
    let Some(mut members) = EtcdServer::cluster(3, &[]) else { return };
    let stranger = EtcdServer::start().unwrap();
    stranger.etcdctl(&["user", "add", "root:secret"]);
    stranger.etcdctl(&["user", "grant-role", "root", "root"]);
    stranger.etcdctl(&["auth", "enable"]);
    let endpoints = [&members[0], &stranger, &members[1], &stranger].map(EtcdServer::endpoint);
    let register = eventually("connected", async || {
        EtcdRegister::builder(endpoints.clone()).with_timeout(PATIENT).connect().await.ok()
    });
    let store = EtcdStore::new(register.await);
    let grant = obtain(&store, &key(), "a", TTL).await;
    let mut denied = 0;

    let place = members.iter().position(|member| member.requests("Txn") > 0).unwrap();
    members[place].kill();
    let beat = eventually("answered", async || {
        let beat = store.heartbeat(&grant, Beat::new(1)).await;
        denied += u32::from(beat.as_ref().is_err_and(|error| error.kind() == Denied));
        beat.ok()
    });

    assert_kept(beat.await);
    assert!(denied > 0, "a wrong endpoint was tried");
}

/// A repeated heartbeat is overtaken if the first one was applied without an answer.
#[track_caller]
fn assert_kept(beat: Heartbeat) {
    assert!(matches!(beat, Heartbeat::Extended | Heartbeat::Overtaken), "{beat:?}");
}

fn error_text(error: &lease_core::StoreError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}
