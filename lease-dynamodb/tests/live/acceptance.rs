//! Acceptance tests on all available servers.

use lease_core::store::{Beat, BootClock, Clock, Heartbeat, LeaseTable, LockStore};
use lease_core::{Change, Locker, LossCause, Value, Written};
use lease_dynamodb::Column;
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain};
use lease_test_servers::dynamodb::Server;

use crate::setup::{LONG, MARGINS, TABLE, item, put_into, ready, s, with_long_timeout};

#[tokio::test]
async fn ensure_table_creates_table() {
    for server in Server::all().await {
        ready(&server, &server.client()).await;

        let described =
            server.client().describe_table().table_name(server.table(TABLE)).send().await;
        assert!(described.is_ok(), "{}: {described:?}", server.name);
    }
}

#[tokio::test]
async fn key_without_item_reads_as_none() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("shard");

        assert_eq!(store.read(&key).await.unwrap(), None, "{}", server.name);
        assert_eq!(store.holder(&key).await.unwrap(), None, "{}", server.name);
    }
}

#[tokio::test]
async fn checkpoint_is_read_back() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("shard");
        let grant = obtain(&store, &key, "worker", LONG).await;

        let change = Change::new().set("checkpoint", "SHARD_END");
        let written = store.update(&grant, &change).await.unwrap();

        assert_eq!(written, Written::Applied, "{}", server.name);
        let record = store.read(&key).await.unwrap().unwrap();
        assert_eq!(record.attributes["checkpoint"], Value::from("SHARD_END"));
    }
}

/// The README documents this comparison. Other stores compare the digits as written.
#[tokio::test]
async fn expected_number_is_compared_by_value() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("shard");
        let grant = obtain(&store, &key, "worker", LONG).await;
        let written = |number: &str| Value::Number(number.parse().unwrap());
        let first = Change::new().set("checkpoint", written("1.50"));
        assert_eq!(store.update(&grant, &first).await.unwrap(), Written::Applied);

        for (number, answer) in [("1.5", Written::Applied), ("1.51", Written::Unexpected)] {
            let change = Change::new().expecting("checkpoint", written(number));
            let found = store.update(&grant, &change).await.unwrap();
            assert_eq!(found, answer, "{} for {number}", server.name);
        }
    }
}

#[tokio::test]
async fn item_of_lease_has_lessee_and_expiry() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let (key, clock) = (fresh_key("shard"), BootClock::new());
        let since = clock.now();

        obtain(&store, &key, "worker", LONG).await;

        let item = item(&server, &key).await.unwrap();
        assert_eq!(item["lessee"], s("worker"), "{}", server.name);
        assert!(item["expires_at"].is_n(), "{}: {item:?}", server.name);
        let holder = store.holder(&key).await.unwrap().unwrap();
        let left = holder.expires_in.unwrap();
        assert!(left + clock.now().since(since) > LONG && left < LONG + MARGINS, "{left:?}");
    }
}

#[tokio::test]
async fn delete_removes_owner_and_checkpoint() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("shard");
        let grant = obtain(&store, &key, "worker", LONG).await;
        let change = Change::new().set("checkpoint", "1");
        assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);

        assert_eq!(store.delete(&grant).await.unwrap(), Written::Applied);

        assert_eq!(store.read(&key).await.unwrap(), None, "{}", server.name);
        let (again, attributes) =
            granted(store.obtain(&claim(&key, "worker", LONG)).await.unwrap());
        assert!(attributes.is_empty(), "{}: {attributes:?}", server.name);
        assert!(again.token > grant.token, "{}", server.name);
    }
}

#[tokio::test]
async fn release_removes_owner_but_keeps_checkpoint() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("shard");
        let grant = obtain(&store, &key, "worker", LONG).await;
        let change = Change::new().set("checkpoint", "1");
        assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);

        store.release(&grant, None).await.unwrap();

        let record = store.read(&key).await.unwrap().unwrap();
        assert_eq!(record.holder, None, "{}", server.name);
        assert_eq!(record.attributes["checkpoint"], Value::from("1"));
    }
}

#[tokio::test]
async fn obtain_any_takes_second_key_if_first_is_held() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let keys = [fresh_key("1"), fresh_key("2")];
        obtain(&store, &keys[0], "other", LONG).await;

        let locker = Locker::new(store);
        let lease = locker.obtain_any(&keys).await.unwrap().unwrap();

        assert_eq!(lease.key(), &keys[1], "{}", server.name);
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn heartbeats_extend_until_eviction() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("job");
        let grant = obtain(&store, &key, "a", LONG).await;

        for beat in 1..=3 {
            let answer = store.heartbeat(&grant, Beat::new(beat)).await.unwrap();
            assert_eq!(answer, Heartbeat::Extended, "{}", server.name);
        }
        assert!(store.evict(&key, &grant.token.into()).await.unwrap());

        let answer = store.heartbeat(&grant, Beat::new(4)).await.unwrap();
        assert_eq!(answer, Heartbeat::Lost(LossCause::Revoked), "{}", server.name);
    }
}

#[tokio::test]
async fn grant_on_operators_item_returns_its_attributes() {
    for server in Server::all().await {
        let table = server.table("jobs");
        let builder = with_long_timeout(server.client(), table)
            .with_column(Column::Lessee, "ProcessID")
            .only_existing_rows();
        let store = builder.build().unwrap();
        store.ensure_table().await.unwrap();
        let key = fresh_key("1");
        put_into(&server, table, &[("lease_key", s(key.as_str())), ("note", s("hello"))]).await;

        let (_, attributes) = granted(store.obtain(&claim(&key, "a", LONG)).await.unwrap());

        assert_eq!(attributes["note"], Value::from("hello"), "{}", server.name);
        assert_eq!(attributes.len(), 1, "{}: {attributes:?}", server.name);
    }
}

#[tokio::test]
async fn held_key_is_refused_to_second_lessee() {
    for server in Server::all().await {
        let store = ready(&server, &server.client()).await;
        let key = fresh_key("job");
        let first = obtain(&store, &key, "a", LONG).await;

        let holder = held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());

        assert_eq!(holder.lessee, first.lessee, "{}", server.name);
        assert_eq!(holder.token, Some(first.token), "{}", server.name);
    }
}
