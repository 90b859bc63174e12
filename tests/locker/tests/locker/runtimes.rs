//! Lockers outside a runtime, and after the end of their runtime.

use lease_core::{Locker, Released, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::runtime::Builder;

use crate::{key, obtained};

#[test]
fn locker_outside_a_runtime_returns_misconfigured() {
    let locker = Locker::new(MemoryStore::new());
    let answer = futures_util::future::FutureExt::now_or_never(locker.obtain(&key("job")));
    assert_eq!(answer.unwrap().unwrap_err().kind(), StoreErrorKind::Misconfigured);
}

#[test]
fn locker_returns_misconfigured_after_given_runtime_ended() {
    let store = MemoryStore::new();
    let first = tokio::runtime::Runtime::new().unwrap();
    let locker = Locker::new(store).with_runtime(first.handle().clone());
    let lease = first.block_on(obtained(&locker, "job"));
    drop(first);

    assert!(!lease.is_held(), "the heartbeater has ended");
    drop(lease);
    let second = tokio::runtime::Runtime::new().unwrap();
    second.block_on(async {
        for error in [
            locker.obtain(&key("job")).await.map(drop).unwrap_err(),
            locker.wait_until_obtained(&key("job")).await.map(drop).unwrap_err(),
            locker.obtain_any(&[key("job")]).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        }
        locker.close().await;
    });
}

#[test]
fn locker_continues_on_another_runtime_after_first_ended() {
    let locker = Locker::new(MemoryStore::new());
    let first = tokio::runtime::Runtime::new().unwrap();
    let lease = first.block_on(obtained(&locker, "job"));
    drop(first);
    assert!(!lease.is_held(), "the heartbeater has ended");

    let second = tokio::runtime::Runtime::new().unwrap();
    let released = second.block_on(async {
        assert!(
            locker.obtain(&key("job")).await.unwrap().into_lease().is_none(),
            "the key was granted before its ttl ended"
        );
        obtained(&locker, "other").await.release().await
    });

    assert_eq!(released.unwrap(), Released::Freed);
}

#[test]
fn locker_with_a_given_runtime_works_on_any_runtime() {
    let (own, callers) = (tokio::runtime::Runtime::new(), Builder::new_current_thread().build());
    let (own, callers) = (own.unwrap(), callers.unwrap());
    let locker = Locker::new(MemoryStore::new()).with_runtime(own.handle().clone());

    let released = callers.block_on(async { obtained(&locker, "job").await.release().await });

    assert_eq!(released.unwrap(), Released::Freed);
}
