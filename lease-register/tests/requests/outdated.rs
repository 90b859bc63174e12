//! Records that are older than a grant.

use lease_core::StoreErrorKind;
use lease_core::store::{Beat, LockStore};
use lease_register::conformance::MemoryRegister;

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
