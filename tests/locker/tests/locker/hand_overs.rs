//! Leases that are handed over to another process.

use std::time::Duration;

use lease_core::{HandOver, Handed, Locker, Ttl};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, obtained};

#[tokio::test(start_paused = true)]
async fn lease_is_handed_to_another_process_as_text() {
    let store = MemoryStore::new();
    let (from, to) = (Locker::new(store.clone()), Locker::new(store));
    let lease = obtained(&from, "job").await;
    let (token, cancelled) = (lease.token(), lease.cancelled_on_loss());

    let Handed::Over(handed) = lease.hand_over(Ttl::clamped(Duration::from_mins(1))).await.unwrap()
    else {
        panic!("the lease was lost")
    };
    let text = handed.to_string();
    assert!(cancelled.is_cancelled());
    sleep(Duration::from_secs(50)).await;
    let resumed = to.resume(text.parse().unwrap()).await.unwrap().unwrap();

    assert!(resumed.token() > token && resumed.lessee() == to.lessee());
    assert!(from.resume(text.parse::<HandOver>().unwrap()).await.unwrap().is_none());
    sleep(TTL * 3).await;
    assert!(resumed.is_held());
}

#[tokio::test(start_paused = true)]
async fn hand_over_expires_and_invalid_text_is_refused() {
    let locker = Locker::new(MemoryStore::new());
    let lease = obtained(&locker, "job").await;
    let Handed::Over(handed) = lease.hand_over(Ttl::clamped(Duration::from_secs(1))).await.unwrap()
    else {
        panic!("the lease was lost")
    };
    sleep(Duration::from_secs(2)).await;
    assert!(locker.resume(handed).await.unwrap().is_none());

    for garbage in ["", "null", "{}", "{\"key\":\"\",\"lessee\":\"a\"}", "[1,2]"] {
        assert!(garbage.parse::<HandOver>().is_err(), "{garbage}");
    }
}
