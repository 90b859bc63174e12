//! The number of requests of sessions, reads of many keys, and counts.

use lease_core::store::{
    Beat, Ended, LeaseRecord, LockStore, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{Attributes, StoreErrorKind};
use lease_test_servers::claims::{fresh_key, granted, obtain};

use super::{child_claim, vacancy};
use crate::requests::counted;
use crate::setup::{LONG, put, s, server_and_store};

#[tokio::test]
async fn each_operation_of_sessions_is_one_request() {
    let (_server, count, _, store) = counted().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let [key, hint] = ["shard", "changes"].map(fresh_key);
    let parent = Parent::from(&session);
    count.take();

    let free = vacancy(&store, &key).await;
    assert_eq!(count.take(), 1, "read_all of one key");
    let claim = child_claim(&key, &session);
    let (grant, _) = granted(store.obtain_under(&claim, &free).await.unwrap());
    assert_eq!(count.take(), 1, "obtain_under");
    let late = store.obtain_under(&child_claim(&key, &session), &free).await.unwrap();
    assert!(matches!(late, Obtained::Held(_)));
    assert_eq!(count.take(), 1, "obtain_under of another token");
    store.release(&grant, None).await.unwrap();
    assert_eq!(count.take(), 1, "release");
    assert!(matches!(store.end_session(&parent).await.unwrap(), SessionState::Held(_)));
    assert_eq!(count.take(), 1, "end_session of a held session");
    store.heartbeat(&session, Beat::new(1)).await.unwrap();
    assert_eq!(count.take(), 1, "heartbeat");
    assert_eq!(store.count(&hint, "changes").await.unwrap(), 1);
    assert_eq!(count.take(), 1, "count");
}

#[tokio::test]
async fn many_keys_are_read_in_batches_in_their_order() {
    let (_server, count, _, store) = counted().await;
    let mut keys: Vec<_> = (0..250).map(|number| fresh_key(&format!("{number}"))).collect();
    for key in keys.iter().step_by(50) {
        obtain(&store, key, "a", LONG).await;
    }
    keys.extend(keys.first().cloned());
    count.take();

    let records = store.read_all(&keys).await;

    assert_eq!(count.take(), 3, "requests for 250 keys");
    for (number, (key, record)) in keys.iter().zip(records).enumerate() {
        let expected = (number % 50 == 0).then(|| key.clone());
        assert_eq!(record.unwrap().map(|record| record.key), expected, "{number}");
    }
}

#[tokio::test]
async fn item_that_cannot_be_read_fails_alone() {
    let (server, store) = server_and_store().await;
    let keys = [(); 3].map(|()| fresh_key("job"));
    let [held, corrupt, _absent] = &keys;
    obtain(&store, held, "a", LONG).await;
    put(&server, &[("lease_key", s(corrupt.as_str())), ("token", s("x"))]).await;

    let read = store.read_all(&keys).await;

    let kinds: Vec<_> = read.into_iter().map(|read| read.map_err(|error| error.kind())).collect();
    let holders: Vec<_> =
        kinds.into_iter().map(|read| read.map(|record| record.is_some())).collect();
    assert_eq!(holders, [Ok(true), Err(StoreErrorKind::Corrupt), Ok(false)]);
}

#[tokio::test]
async fn attribute_that_is_no_number_is_not_counted() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("changes");
    put(&server, &[("lease_key", s(key.as_str())), ("changes", s("many"))]).await;

    let refused = store.count(&key, "changes").await.unwrap_err();
    let of_the_lease = store.count(&key, "token").await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Corrupt);
    assert_eq!(of_the_lease.kind(), StoreErrorKind::Refused);
}

#[tokio::test]
async fn vacancy_of_another_key_is_refused() {
    let (_server, store) = server_and_store().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let [key, other] = ["key", "other"].map(fresh_key);

    let vacancy = vacancy(&store, &other).await;
    let refused = store.obtain_under(&child_claim(&key, &session), &vacancy).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Refused);
}

/// A late hand-over heartbeat takes the key out of the ended session, under the same token.
/// DynamoDB could grant a late copy of the claim once the key is free. So the refusal is not final.
#[tokio::test]
async fn claim_after_a_late_hand_over_is_unclear_until_the_key_is_free() {
    let (_server, store) = server_and_store().await;
    let former = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let key = fresh_key("shard");
    let child = super::child(&store, &key, &former).await;
    let record = super::record(&store, &key).await;
    store.release(&former, None).await.unwrap();
    let proof = Ended::written(Parent::from(&former));
    let next = obtain(&store, &fresh_key("worker"), "b", LONG).await;
    let claim = child_claim(&key, &next);
    let vacancy = Vacancy::seen(&key, record.as_ref(), &claim.lessee, Some(&proof)).unwrap();
    store.heartbeat(&child, Beat::new(1)).await.unwrap();

    let unclear = store.obtain_under(&claim, &vacancy).await.unwrap_err();
    store.release(&child, None).await.unwrap();
    let (grant, _) = granted(store.obtain_under(&claim, &vacancy).await.unwrap());

    assert!(unclear.is_retryable());
    assert!(grant.token > child.token);
}

/// A former holder may transfer its key after its session ended, until a lessee obtains the key. A
/// condition on the reservation would make the refusal of a claim provisional.
#[tokio::test]
async fn reservation_after_the_end_of_a_session_does_not_refuse_its_vacancy() {
    let (_server, store) = server_and_store().await;
    let former = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let key = fresh_key("shard");
    let child = super::child(&store, &key, &former).await;
    let record: Option<LeaseRecord> = super::record(&store, &key).await;
    store.release(&former, None).await.unwrap();
    let proof = Ended::written(Parent::from(&former));
    let next = obtain(&store, &fresh_key("worker"), "b", LONG).await;
    let claim = child_claim(&key, &next).with_attributes(Attributes::new());
    let vacancy = Vacancy::seen(&key, record.as_ref(), &claim.lessee, Some(&proof)).unwrap();

    store.release(&child, Some(LONG)).await.unwrap();

    let (grant, _) = granted(store.obtain_under(&claim, &vacancy).await.unwrap());
    assert!(grant.token > child.token);
}
