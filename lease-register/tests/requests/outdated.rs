//! Records that are older than a grant: a request reads them again, or fails. They never end a lease or a hand-over.

use std::time::Duration;

use lease_core::StoreErrorKind;
use lease_core::store::{Beat, Heartbeat, LockStore, Obtained};
use lease_register::RegisterStore;
use lease_register::conformance::MemoryRegister;
use tokio::time::{sleep, timeout};

use crate::counting::{Counting, Fate};
use crate::{claim, granted, held};

/// A loss that an old record shows would end a lease that is held.
#[tokio::test]
async fn read_that_is_older_than_the_grant_is_no_loss() {
    let store = Counting::store(MemoryRegister::opaque());
    let former = granted(&store, &claim("a")).await;
    held(&store, &claim("b")).await;
    store.register().first.lock().unwrap().take();
    held(&store, &claim("b")).await; // its read is the first one now
    store.release(&former, None).await.unwrap();
    let grant = granted(&store, &claim("b")).await;
    store.register().set(Fate::LosesAnswers);
    assert!(store.heartbeat(&grant, Beat::new(1)).await.is_err());
    store.register().set(Fate::ReadsTheFirst);

    let heartbeat = store.heartbeat(&grant, Beat::new(2)).await.unwrap_err();

    assert_eq!(heartbeat.kind(), StoreErrorKind::Unavailable);
}

/// The grant is handed over within a ttl of the last read.
#[tokio::test(start_paused = true)]
async fn known_record_that_is_older_than_the_grant_is_read_again() {
    let register = MemoryRegister::growing();
    let (others, store) = (RegisterStore::new(register.clone()), Counting::store(register));
    let former = granted(&others, &claim("a")).await;
    held(&store, &claim("b")).await;
    others.release(&former, None).await.unwrap();
    let handed = granted(&others, &claim("c")).await;
    store.register().take_sent();

    let resumed = store.adopt(&handed, &claim("b")).await.unwrap();

    assert!(matches!(resumed, Obtained::Granted(..)), "{resumed:?}");
    assert_eq!(store.register().take_sent(), ["read", "replace"]);
}

/// A watch remembers the record that it has read, although this store has written a later one meanwhile.
#[tokio::test(start_paused = true)]
async fn record_that_a_watch_has_read_fails_no_heartbeat() {
    let register = MemoryRegister::growing();
    let (others, store) = (RegisterStore::new(register.clone()), Counting::store(register));
    let former = granted(&others, &claim("a")).await;
    let freed = store.watch(&former.key).await.unwrap();
    store.register().set(Fate::DelaysWatches);
    let waiting = tokio::spawn(freed);
    others.heartbeat(&former, Beat::new(1)).await.unwrap();
    sleep(Duration::from_secs(1)).await; // time is paused: the watch has read the heartbeat now
    others.release(&former, None).await.unwrap();
    let grant = granted(&store, &claim("b")).await;
    store.register().watches.notify_one();
    timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    store.register().take_sent();

    let heartbeat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(heartbeat, Heartbeat::Extended);
    assert_eq!(store.register().take_sent(), ["read", "replace"]);
}

/// A refusal would end the hand-over for good.
#[tokio::test]
async fn read_that_is_older_than_the_handed_grant_is_no_refusal() {
    let register = MemoryRegister::opaque();
    let (others, store) = (RegisterStore::new(register.clone()), Counting::store(register));
    let former = granted(&others, &claim("a")).await;
    others.release(&former, None).await.unwrap();
    assert_eq!(store.holder(&former.key).await.unwrap(), None); // its read is the first one
    let handed = granted(&others, &claim("c")).await;
    let resuming = claim("b");

    store.register().set(Fate::ReadsTheFirst);
    let error = store.adopt(&handed, &resuming).await.unwrap_err();
    store.register().set(Fate::Sound);
    let resumed = store.adopt(&handed, &resuming.repeated()).await.unwrap();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(matches!(resumed, Obtained::Granted(..)), "{resumed:?}");
}
