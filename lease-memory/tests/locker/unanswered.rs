//! Tests claims whose grant expires before the locker has an answer.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{
    Beat, BootClock, Claim, Clock, Grant, Heartbeat, LeaseTable, LockStore, Obtained,
};
use lease_core::{
    Attempt, Attributes, Holder, Lease, LeaseKey, LeaseOptions, Locker, StoreError, Waiting,
};
use lease_memory::MemoryStore;
use tokio::time::{sleep, timeout};

use crate::key;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// A store whose refusals name no expiry.
#[derive(Debug, Clone)]
struct WithoutExpiry(Faulty<MemoryStore>);

#[async_trait]
impl LockStore for WithoutExpiry {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut answer = self.0.obtain(claim).await?;
        if let Obtained::Held(holder) = &mut answer {
            holder.expires_in = None;
        }
        Ok(answer)
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.0.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.0.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.0.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.0.holder(key).await
    }
}

/// A store with a record at the key. It remembers the nonces of the record's grants for ever.
async fn with_record() -> Faulty<MemoryStore> {
    let store = MemoryStore::new();
    store.create(&key("job"), &Attributes::new()).await.unwrap();
    Faulty::new(store)
}

/// Loses the answer to a granted claim, and refuses the connection until the grant has expired. The locker does not
/// know that it had the key, and the store refuses all later requests of this claim.
async fn lose_a_grant(faulty: &Faulty<MemoryStore>, locker: &Locker) {
    faulty.next(Call::Obtain, Fault::LoseReply);
    assert!(locker.obtain(&key("job")).await.is_err());
    faulty.every(Call::Obtain, Fault::Fail);
    let over = BootClock::new().now() + TTL;
    while BootClock::new().now() < over {
        // Each attempt takes over the claim before the cleanup repeats it.
        sleep(SECOND).await;
        assert!(locker.obtain(&key("job")).await.is_err());
    }
    faulty.heal();
}

fn racing(store: impl LockStore) -> Locker {
    let options = LeaseOptions::new(TTL).unwrap().with_waiting(Waiting::Racing);
    Locker::new(store).with_options(options)
}

#[tokio::test(start_paused = true)]
async fn claim_whose_unanswered_grant_has_expired_is_made_anew_at_once() {
    for faulty in [with_record().await, Faulty::new(MemoryStore::new())] {
        let locker = racing(faulty.clone());
        lose_a_grant(&faulty, &locker).await;

        let attempt = locker.obtain(&key("job")).await.unwrap();

        assert!(attempt.into_lease().is_some_and(|lease| lease.is_held()));
    }
}

/// Obtains the key with one attempt per second. Each attempt takes over the claim of the last one before the
/// cleanup repeats it.
async fn obtain_every_second(locker: &Locker) -> Lease {
    loop {
        if let Ok(Attempt::Obtained(lease)) = locker.obtain(&key("job")).await {
            return lease;
        }
        sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn errors_do_not_prolong_the_four_ttls_of_a_refused_claim() {
    let faulty = with_record().await;
    let locker = racing(WithoutExpiry(faulty.clone()));
    lose_a_grant(&faulty, &locker).await;
    let start = BootClock::new().now();
    let mut fails = false;
    faulty.choose(move |_call| {
        fails = !fails;
        fails.then_some(Fault::Fail)
    });

    let wait = timeout(TTL * 100, obtain_every_second(&locker)).await;

    assert!(wait.unwrap().is_held());
    let took = BootClock::new().now().since(start);
    assert!(TTL * 3 < took && took < TTL * 5, "{took:?}");
}

/// The refusals do not show that the grant has expired.
#[tokio::test(start_paused = true)]
async fn refused_claim_is_made_anew_after_four_ttls() {
    let faulty = with_record().await;
    let locker = racing(WithoutExpiry(faulty.clone()));
    lose_a_grant(&faulty, &locker).await;
    let start = BootClock::new().now();

    let wait = timeout(TTL * 100, locker.wait_until_obtained(&key("job"))).await;

    assert!(wait.unwrap().unwrap().is_held());
    let took = BootClock::new().now().since(start);
    assert!(TTL * 3 < took && took < TTL * 5, "{took:?}");
}

/// The last request of the old claim is in flight when the next attempt drops this claim and makes a new one.
#[tokio::test(start_paused = true)]
async fn late_grant_of_a_dropped_claim_is_released() {
    let faulty = Faulty::new(MemoryStore::new());
    let locker = racing(faulty.clone());
    let other = Locker::new(faulty.clone());
    let lease = other.obtain(&key("job")).await.unwrap().into_lease().unwrap();
    faulty.next(Call::Obtain, Fault::Fail);
    assert!(locker.obtain(&key("job")).await.is_err());
    let start = BootClock::new().now();
    while BootClock::new().now() < start + TTL * 4 - SECOND {
        assert!(locker.obtain(&key("job")).await.unwrap().into_lease().is_none());
        sleep(SECOND).await;
    }
    faulty.next(Call::Obtain, Fault::Fail);
    assert!(locker.obtain(&key("job")).await.is_err());
    lease.release().await.unwrap();
    faulty.next(Call::Obtain, Fault::DelayReply(SECOND * 8));
    sleep(SECOND * 7).await;
    let held_by = faulty.holder(&key("job")).await.unwrap().unwrap().lessee;
    assert_eq!(
        held_by,
        *locker.lessee(),
        "the cleanup's request should be granted, without an answer"
    );

    let attempt = locker.obtain(&key("job")).await.unwrap();
    assert!(attempt.into_lease().is_none(), "the late grant holds the key");
    sleep(SECOND * 5).await;

    assert_eq!(faulty.holder(&key("job")).await.unwrap(), None);
}
