//! Each test checks that this store does not have a certain fault of earlier systems.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::SkewedClock;
use lease_core::store::{Beat, BootClock, Clock, Heartbeat, LeaseTable, LockStore, Obtained};
use lease_core::{Change, LeaseOptions, Lessee, Locker, LossCause, StoreErrorKind, Written};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain, soon, take_over};
use lease_test_servers::dynamodb::{Server, client_of};
use lease_test_servers::proxy::Fault;

use crate::setup::{
    LONG, MARGINS, TABLE, item, n, put, ready, s, server_and_store, with_short_timeout,
};

#[tokio::test]
async fn lease_is_taken_after_expiry_and_not_before() {
    let (server, store) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    let key = fresh_key("shard");
    obtain(&store, &key, "holder", LONG).await; // for 60 s, plus a margin of 2 s
    let contender = || DynamoDbStore::new(client_of(proxy.address()), TABLE);

    for (seconds_later, taken) in [(0, false), (55, false), (59, false), (66, true)] {
        clock.set(seconds_later);
        let answer = contender().obtain(&claim(&key, "b", LONG)).await.unwrap();
        assert_eq!(
            matches!(answer, Obtained::Granted(..)),
            taken,
            "{seconds_later} s later: {answer:?}"
        );
    }
}

#[tokio::test]
async fn checkpoint_by_former_holder_changes_nothing() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("shard");
    let former = obtain(&store, &key, "a", LONG).await;
    store.release(&former, None).await.unwrap();
    let current = obtain(&store, &key, "b", LONG).await;
    let change = Change::new().set("checkpoint", "2");
    assert_eq!(store.update(&current, &change).await.unwrap(), Written::Applied);
    let before = item(&server, &key).await;

    let change = Change::new().set("checkpoint", "1");
    let answer = store.update(&former, &change).await.unwrap();

    assert_eq!(answer, Written::Lost(LossCause::Superseded));
    assert_eq!(item(&server, &key).await, before);
}

#[tokio::test]
async fn writes_by_former_holder_change_nothing() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("shard");
    let former = obtain(&store, &key, "a", LONG).await;
    store.release(&former, None).await.unwrap();
    obtain(&store, &key, "a", LONG).await; // the same lessee: the nonce differs
    let before = item(&server, &key).await;

    store.release(&former, None).await.unwrap();
    store.release(&former, Some(LONG)).await.unwrap();
    let lost = Written::Lost(LossCause::Superseded);
    assert_eq!(store.delete(&former).await.unwrap(), lost);
    let to: Lessee = "c".parse().unwrap();
    assert_eq!(store.transfer(&former, &to, LONG).await.unwrap(), lost);
    let beat = store.heartbeat(&former, Beat::new(9)).await.unwrap();
    assert_eq!(beat, Heartbeat::Lost(LossCause::Superseded));
    held(store.adopt(&former, &claim(&key, "c", LONG)).await.unwrap());
    assert!(!store.evict(&key, &former.token.into()).await.unwrap());

    assert_eq!(item(&server, &key).await, before);
}

#[tokio::test]
async fn lease_with_heartbeats_outlives_its_ttl() {
    let (_server, store) = server_and_store().await;
    let ttl = Duration::from_secs(5);
    let options = LeaseOptions::new(ttl).unwrap();
    let locker = Locker::new(store.clone()).with_options(options);
    let key = fresh_key("shard");
    let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();

    tokio::time::sleep(ttl * 2).await; // the work

    assert!(lease.is_held());
    held(store.obtain(&claim(&key, "b", ttl)).await.unwrap());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn lease_writes_keep_checkpoint_and_other_attributes() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("shard");
    let theirs = [("checkpoint", s("7")), ("unknown", n(1))];
    let key_value = [("lease_key", s(key.as_str()))];
    put(&server, &[&key_value[..], &theirs[..]].concat()).await;

    let grant = obtain(&store, &key, "a", LONG).await;
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    store.adopt(&grant, &claim(&key, "b", LONG)).await.unwrap();
    store.release(&grant, None).await.unwrap();

    let item = item(&server, &key).await.unwrap();
    for (name, value) in theirs {
        assert_eq!(item[name], value);
    }
}

#[tokio::test]
async fn contender_with_wrong_clock_waits_but_takes_over() {
    let (server, store) = server_and_store().await;
    let ttl = Duration::from_secs(5);
    let contend = async |ahead, rate| {
        let key = fresh_key("shard");
        let clock = Arc::new(SkewedClock::new(Duration::from_secs(ahead), rate));
        let contender = DynamoDbStore::builder(server.client(), TABLE)
            .with_clock(clock)
            .with_margin(Duration::ZERO)
            .build()
            .unwrap();
        let grant = obtain(&store, &key, "holder", ttl).await;

        for beat in 1..=6 {
            held(contender.obtain(&claim(&key, "b", ttl)).await.unwrap());
            tokio::time::sleep(ttl / 3).await;
            let answer = store.heartbeat(&grant, Beat::new(beat)).await.unwrap();
            assert_eq!(answer, Heartbeat::Extended, "clock {ahead} s ahead, rate {rate}");
        }

        take_over(&contender, &key, "b", ttl).await;
    };

    tokio::join!(contend(0, 0.995), contend(3600, 1.0), contend(3600, 1.005));
}

#[tokio::test]
async fn lost_race_is_no_error() {
    let (_server, store) = server_and_store().await;
    let key = fresh_key("shard");
    let claims: Vec<_> = (0..16).map(|i| claim(&key, &format!("{i}"), LONG)).collect();

    let answers = futures_util::future::join_all(claims.iter().map(|one| store.obtain(one))).await;

    let mut winners = 0;
    for answer in answers {
        winners += usize::from(matches!(answer.unwrap(), Obtained::Granted(..)));
    }
    assert_eq!(winners, 1);
}

#[tokio::test]
async fn item_with_null_or_empty_owner_is_free() {
    let (server, store) = server_and_store().await;
    let null = aws_sdk_dynamodb::types::AttributeValue::Null(true);
    for absent in [None, Some(null), Some(s(""))] {
        let key = fresh_key("shard");
        let mut row = vec![("lease_key", s(key.as_str()))];
        row.extend(absent.map(|absent| ("lessee", absent)));
        put(&server, &row).await;

        obtain(&store, &key, "a", LONG).await;
    }
}

#[tokio::test]
async fn owner_without_expiry_is_observed_for_a_ttl() {
    let (server, store) = server_and_store().await;
    let ttl = Duration::from_millis(500);
    let key = fresh_key("job");
    put(&server, &[("lease_key", s(key.as_str())), ("lessee", s("gone"))]).await;
    let clock = BootClock::new();
    let since = clock.now();

    let holder = held(store.obtain(&claim(&key, "b", ttl)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "gone");
    take_over(&store, &key, "b", ttl).await;

    assert!(clock.now().since(since) >= ttl);
}

#[tokio::test]
async fn reads_are_strongly_consistent() {
    let (server, _) = server_and_store().await;
    let proxy = server.proxy().await;
    let store = DynamoDbStore::builder(client_of(proxy.address()), TABLE)
        .with_consistent_listing()
        .build()
        .unwrap();
    let key = fresh_key("shard");

    store.holder(&key).await.unwrap();
    store.read(&key).await.unwrap();
    let listed = futures_util::StreamExt::count(store.list("")).await;

    assert_eq!(listed, 0);
    assert_eq!(proxy.requests_with("DynamoDB_20120810"), 3);
    assert_eq!(proxy.requests_with("\"ConsistentRead\":true"), 3);
}

#[tokio::test]
async fn released_key_is_obtained_at_once() {
    let (_server, store) = server_and_store().await;
    let key = fresh_key("job");
    let first = obtain(&store, &key, "a", LONG).await;

    store.release(&first, None).await.unwrap();

    let second = obtain(&store, &key, "b", LONG).await;
    assert!(second.token > first.token);
}

#[tokio::test]
async fn one_failed_heartbeat_keeps_lease() {
    let (server, _) = server_and_store().await;
    let proxy = server.proxy().await;
    let ttl = Duration::from_secs(10);
    let locker = Locker::new(DynamoDbStore::new(client_of(proxy.address()), TABLE))
        .with_options(LeaseOptions::new(ttl).unwrap());
    let key = fresh_key("job");
    let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();

    let mut state = lease.state();
    proxy.next_with("UpdateItem", Fault::CutBefore);
    soon(state.wait_for(|state| *state == lease_core::LeaseState::AtRisk)).await.unwrap();
    soon(state.wait_for(|state| *state == lease_core::LeaseState::Held)).await.unwrap();

    assert!(lease.is_held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn heartbeat_after_expiry_reports_loss() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", Duration::from_secs(10)).await;

    let (proxy, clock) = server.at_another_time().await;
    clock.set(3600);
    let awake = ready(&server, &client_of(proxy.address())).await;
    let answer = awake.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(answer, Heartbeat::Lost(LossCause::Expired));
    let change = Change::new().set("checkpoint", "1");
    let answer = awake.update(&grant, &change).await.unwrap();
    assert_eq!(answer, Written::Lost(LossCause::Expired));
}

#[tokio::test]
async fn two_processes_with_one_name_do_not_both_hold() {
    let (server, store) = server_and_store().await;
    let twin = DynamoDbStore::new(server.client(), TABLE);
    let key = fresh_key("job");
    let first = obtain(&store, &key, "same", LONG).await;

    held(twin.obtain(&claim(&key, "same", LONG)).await.unwrap());

    store.release(&first, None).await.unwrap();
    let second = obtain(&twin, &key, "same", LONG).await;
    assert!(second.token > first.token);
}

#[tokio::test]
async fn wait_on_missing_table_fails_at_once() {
    let server = Server::dynoxide().await;
    let locker = Locker::new(DynamoDbStore::new(server.client(), "no-such-table"));

    let error = soon(locker.wait_until_obtained(&fresh_key("job"))).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn silent_server_times_out() {
    let (server, _) = server_and_store().await;
    let proxy = server.proxy().await;
    let store = with_short_timeout(&proxy);
    proxy.next(Fault::LoseRequest);

    let error = soon(store.holder(&fresh_key("job"))).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn list_returns_all_pages() {
    let (server, store) = server_and_store().await;
    let proxy = server.proxy().await;
    let large = "x".repeat(300_000);
    for number in 0..9 {
        let key = format!("page/{number}");
        put(&server, &[("lease_key", s(&key)), ("large", s(&large))]).await;
    }
    put(&server, &[("lease_key", s("other"))]).await;

    let behind = DynamoDbStore::new(client_of(proxy.address()), TABLE);
    let listed: Vec<_> = futures_util::StreamExt::collect(behind.list("page/")).await;

    assert_eq!(listed.len(), 9);
    assert!(listed.iter().all(Result::is_ok));
    assert!(proxy.requests_with("DynamoDB_20120810.Scan") > 2);
    drop(store);
}

#[tokio::test]
async fn obtain_any_holds_one_of_many_keys() {
    let (_server, store) = server_and_store().await;
    let keys = [fresh_key("1"), fresh_key("2"), fresh_key("3")];

    let locker = Locker::new(store.clone());
    let lease = locker.obtain_any(&keys).await.unwrap().unwrap();

    let mut holders = 0;
    for key in &keys {
        holders += usize::from(store.holder(key).await.unwrap().is_some());
    }
    assert_eq!(holders, 1);
    lease.release().await.unwrap();
}

#[test]
fn heartbeat_period_above_half_the_ttl_is_refused() {
    let options = LeaseOptions::new(LONG).unwrap();

    assert!(options.clone().with_heartbeats_per_ttl(1).is_err());
    assert!(options.with_heartbeats_per_ttl(2).is_err());
}

#[tokio::test]
async fn corrupt_item_does_not_hide_the_others() {
    let (server, store) = server_and_store().await;
    put(&server, &[("lease_key", s("a")), ("note", s("fine"))]).await;
    put(&server, &[("lease_key", s("b")), ("token", s("not a number"))]).await;
    put(&server, &[("lease_key", s("c"))]).await;

    let listed: Vec<_> = futures_util::StreamExt::collect(store.list("")).await;

    let mut good: Vec<_> = listed.iter().flatten().map(|record| record.key.as_str()).collect();
    good.sort_unstable(); // the order of a list is undefined
    assert_eq!(good, ["a", "c"]);
    let bad: Vec<_> = listed.iter().filter_map(|one| one.as_ref().err()).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].kind(), StoreErrorKind::Corrupt);
    let refused = store.obtain(&claim(&"b".parse().unwrap(), "x", LONG)).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn key_reserved_after_release_is_held_until_end() {
    let (server, store) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    let (key, boot_clock) = (fresh_key("job"), BootClock::new());
    let grant = obtain(&store, &key, "a", LONG).await;
    let (since, reserved) = (boot_clock.now(), Duration::from_mins(10));

    store.release(&grant, Some(reserved)).await.unwrap();

    let holder = held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "a");
    let left = holder.expires_in.unwrap();
    let passed = boot_clock.now().since(since);
    // DynamoDB's date has a resolution of one second.
    assert!(left + passed + Duration::from_secs(1) > reserved, "{left:?}");
    assert!(left < reserved + MARGINS, "{left:?}");
    clock.set(620);
    let later = DynamoDbStore::new(client_of(proxy.address()), TABLE);
    granted(later.obtain(&claim(&key, "b", LONG)).await.unwrap());
}
