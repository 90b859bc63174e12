//! Writes to the record of a lease: update, transfer and delete.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{Attempt, Change, Lessee, Locker, LossCause, Released, Reservation, Written};
use lease_memory::MemoryStore;

use crate::{key, obtained};

fn minute() -> Reservation {
    Reservation::clamped(Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn update_of_lost_lease_ends_lease() {
    let store = MemoryStore::new();
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let change = Change::new().set("line", 1);
    assert_eq!(lease.update(&store, &change).await.unwrap(), Written::Applied);

    store.release(lease.grant(), None).await.unwrap();

    assert!(lease.is_held(), "no heartbeat has reported the loss yet");
    assert!(matches!(lease.update(&store, &change).await.unwrap(), Written::Lost(_)));
    assert!(!lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn update_without_answer_times_out() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.next(Call::Write, Fault::Hang);

    let error = lease.update(&store, &Change::new().set("line", 1)).await.unwrap_err();

    assert!(error.is_retryable() && lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn transferred_key_is_granted_only_to_its_lessee() {
    let store = Faulty::new(MemoryStore::new());
    let next = Lessee::new("next").unwrap();
    let (locker, to) =
        (Locker::new(store.clone()), Locker::new(store.clone()).with_lessee(next.clone()));
    let lease = obtained(&locker, "job").await;
    let cancelled = lease.cancelled_on_loss();
    // The repeated request finds that the key is already transferred, which must not count as a
    // loss.
    store.next(Call::Write, Fault::LoseReply);

    let released = lease.transfer(store.clone(), &next, minute()).await.unwrap();

    assert_eq!(released, Released::Freed);
    assert!(cancelled.is_cancelled());
    assert!(matches!(locker.obtain(&key("job")).await.unwrap(), Attempt::Held(_)));
    assert!(to.obtain(&key("job")).await.unwrap().into_lease().is_some());
}

#[tokio::test(start_paused = true)]
async fn deleted_record_is_gone_and_key_is_free() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    let token = lease.token();
    store.next(Call::Write, Fault::LoseReply);

    assert_eq!(lease.delete(store.clone()).await.unwrap(), Released::Freed);

    assert_eq!(store.read(&key("job")).await.unwrap(), None);
    assert!(obtained(&locker, "job").await.token() > token);
}

#[tokio::test(start_paused = true)]
async fn transfer_of_superseded_lease_reports_loss() {
    let store = MemoryStore::new();
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.release(lease.grant(), None).await.unwrap();
    let other = obtained(&Locker::new(store.clone()), "job").await;

    let released = lease.transfer(store.clone(), other.lessee(), minute()).await.unwrap();

    assert_eq!(released, Released::AlreadyLost(LossCause::Superseded));
    assert!(other.is_held());
}
