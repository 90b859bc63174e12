//! The faults of the systems before this one, each with what is right instead.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    Beat, BootClock, Change, Clock, Heartbeat, LeaseOptions, LeaseTable, Lessee, LockStore, Locker,
    LossCause, Obtained, SkewedClock, StoreErrorKind, Written,
};
use lease_dynamodb::DynamoDbStore;
use lease_tests::claims::{claim, fresh_key, granted, held, obtain, soon, take_over};
use lease_tests::dynamodb::{Server, client_of};
use lease_tests::proxy::Fault;

use crate::world::{LONG, TABLE, hasty, item, n, put, ready, s, world};

// S1.f1
#[tokio::test]
async fn a_lease_is_taken_after_its_end_and_not_before() {
    let (server, store) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    let key = fresh_key("shard");
    obtain(&store, &key, "holder", LONG).await; // 60 s, to which a margin of 2 s is added
    // Processes that have just started, at different times.
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

// S1.f2
#[tokio::test]
async fn a_checkpoint_by_a_former_holder_changes_nothing() {
    let (server, store) = world().await;
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

// S1.f3
#[tokio::test]
async fn no_write_by_a_former_holder_changes_anything() {
    let (server, store) = world().await;
    let key = fresh_key("shard");
    let former = obtain(&store, &key, "a", LONG).await;
    store.release(&former, None).await.unwrap();
    obtain(&store, &key, "a", LONG).await; // the same name: the nonce tells them apart
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
    assert!(!store.evict(&key, former.token).await.unwrap());

    assert_eq!(item(&server, &key).await, before);
}

// S1.f4
#[tokio::test]
async fn a_lease_outlives_its_ttl_while_its_holder_works() {
    let (_server, store) = world().await;
    let ttl = Duration::from_secs(5);
    let options = LeaseOptions::new(ttl).unwrap();
    let locker = Locker::new(store.clone()).with_options(options);
    let key = fresh_key("shard");
    let lease = locker.obtain(&key).await.unwrap().lease().unwrap();

    tokio::time::sleep(ttl * 2).await; // the work, which knows nothing of heartbeats

    assert!(lease.is_held());
    held(store.obtain(&claim(&key, "b", ttl)).await.unwrap());
    lease.release().await.unwrap();
}

// S1.f5
#[tokio::test]
async fn no_lease_write_touches_a_checkpoint_or_an_unknown_attribute() {
    let (server, store) = world().await;
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

// S1.f6, S3.f1
#[tokio::test]
async fn a_contender_whose_clock_is_wrong_neither_steals_nor_starves() {
    let (server, store) = world().await;
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

// S1.f7
#[tokio::test]
async fn a_lost_race_is_an_answer_and_not_an_error() {
    let (_server, store) = world().await;
    let key = fresh_key("shard");
    let claims: Vec<_> = (0..16).map(|i| claim(&key, &format!("{i}"), LONG)).collect();

    let answers = futures_util::future::join_all(claims.iter().map(|one| store.obtain(one))).await;

    let mut winners = 0;
    for answer in answers {
        winners += usize::from(matches!(answer.unwrap(), Obtained::Granted(..)));
    }
    assert_eq!(winners, 1);
}

// S1.f12, S3.f2
#[tokio::test]
async fn an_item_without_an_owner_is_free_however_that_is_written() {
    let (server, store) = world().await;
    let null = aws_sdk_dynamodb::types::AttributeValue::Null(true);
    for nobody in [None, Some(null), Some(s(""))] {
        let key = fresh_key("shard");
        let mut row = vec![("lease_key", s(key.as_str()))];
        row.extend(nobody.map(|nobody| ("lessee", nobody)));
        put(&server, &row).await;

        obtain(&store, &key, "a", LONG).await;
    }
}

// S3.f2
#[tokio::test]
async fn an_owner_who_left_no_end_behind_is_watched_for_a_ttl() {
    let (server, store) = world().await;
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

// S1.f14
#[tokio::test]
async fn what_is_read_before_acting_is_read_consistently() {
    let (server, _) = world().await;
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

// S3.f3
#[tokio::test]
async fn a_released_key_is_obtained_at_once() {
    let (_server, store) = world().await;
    let key = fresh_key("job");
    let first = obtain(&store, &key, "a", LONG).await;

    store.release(&first, None).await.unwrap();

    let second = obtain(&store, &key, "b", LONG).await;
    assert!(second.token > first.token);
}

// S3.f4
#[tokio::test]
async fn a_heartbeat_that_fails_once_does_not_end_the_lease() {
    let (server, _) = world().await;
    let proxy = server.proxy().await;
    let ttl = Duration::from_secs(10);
    let locker = Locker::new(DynamoDbStore::new(client_of(proxy.address()), TABLE))
        .with_options(LeaseOptions::new(ttl).unwrap());
    let key = fresh_key("job");
    let lease = locker.obtain(&key).await.unwrap().lease().unwrap();

    let mut state = lease.state();
    proxy.next_with("UpdateItem", Fault::CutBefore);
    soon(state.wait_for(|state| *state == lease_core::LeaseState::AtRisk)).await.unwrap();
    soon(state.wait_for(|state| *state == lease_core::LeaseState::Held)).await.unwrap();

    assert!(lease.is_held());
    lease.release().await.unwrap();
}

// S3.f5
#[tokio::test]
async fn a_heartbeat_after_the_end_is_a_loss_and_no_silent_return() {
    let (server, store) = world().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", Duration::from_secs(10)).await;

    // The holder slept for an hour, and has heard of nothing since.
    let (proxy, clock) = server.at_another_time().await;
    clock.set(3600);
    let awake = ready(&server, &client_of(proxy.address())).await;
    let answer = awake.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(answer, Heartbeat::Lost(LossCause::Expired));
    let change = Change::new().set("checkpoint", "1");
    let answer = awake.update(&grant, &change).await.unwrap();
    assert_eq!(answer, Written::Lost(LossCause::Expired));
}

// S3.f6
#[tokio::test]
async fn two_processes_of_one_name_do_not_both_hold() {
    let (server, store) = world().await;
    let twin = DynamoDbStore::new(server.client(), TABLE);
    let key = fresh_key("job");
    let first = obtain(&store, &key, "same", LONG).await;

    held(twin.obtain(&claim(&key, "same", LONG)).await.unwrap());

    store.release(&first, None).await.unwrap();
    let second = obtain(&twin, &key, "same", LONG).await;
    assert!(second.token > first.token);
}

// S3.f7
#[tokio::test]
async fn waiting_ends_at_once_where_it_can_only_fail() {
    let server = Server::dynoxide().await;
    let locker = Locker::new(DynamoDbStore::new(server.client(), "no-such-table"));

    let error = soon(locker.wait_until_obtained(&fresh_key("job"))).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
}

// S3.f7
#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let (server, _) = world().await;
    let proxy = server.proxy().await;
    let store = hasty(&proxy);
    proxy.next(Fault::LoseRequest);

    let error = soon(store.holder(&fresh_key("job"))).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.is_retryable());
}

// S3.f8
#[tokio::test]
async fn a_list_goes_over_all_pages() {
    let (server, store) = world().await;
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

// S3.f9
#[tokio::test]
async fn who_wants_one_of_many_keys_gets_one() {
    let (_server, store) = world().await;
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

// S3.f10
#[test]
fn a_heartbeat_period_beyond_half_the_ttl_is_refused() {
    let options = LeaseOptions::new(LONG).unwrap();

    assert!(options.clone().with_heartbeats_per_ttl(1).is_err());
    assert!(options.with_heartbeats_per_ttl(2).is_err());
}

// S3.f11
#[tokio::test]
async fn one_item_that_cannot_be_read_does_not_hide_the_others() {
    let (server, store) = world().await;
    put(&server, &[("lease_key", s("a")), ("note", s("fine"))]).await;
    put(&server, &[("lease_key", s("b")), ("token", s("not a number"))]).await;
    put(&server, &[("lease_key", s("c"))]).await;

    let listed: Vec<_> = futures_util::StreamExt::collect(store.list("")).await;

    let mut good: Vec<_> = listed.iter().flatten().map(|record| record.key.as_str()).collect();
    good.sort_unstable(); // a list comes in any order
    assert_eq!(good, ["a", "c"]);
    let bad: Vec<_> = listed.iter().filter_map(|one| one.as_ref().err()).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].kind(), StoreErrorKind::Corrupt);
    let refused = store.obtain(&claim(&"b".parse().unwrap(), "x", LONG)).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn a_key_reserved_after_its_release_is_nobodys_for_that_long() {
    let (server, store) = world().await;
    let (proxy, clock) = server.at_another_time().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;

    store.release(&grant, Some(Duration::from_mins(10))).await.unwrap();

    let holder = held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "a");
    let left = holder.expires_in.unwrap();
    assert!(left > Duration::from_secs(590) && left < Duration::from_secs(612), "{left:?}");
    clock.set(620);
    let later = DynamoDbStore::new(client_of(proxy.address()), TABLE);
    granted(later.obtain(&claim(&key, "b", LONG)).await.unwrap());
}
