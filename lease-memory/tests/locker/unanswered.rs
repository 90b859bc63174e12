//! Tests claims whose grant expires before the locker has an answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{
    Beat, BootClock, Claim, Clock, Grant, Heartbeat, LeaseTable, LockStore, Obtained,
};
use lease_core::{
    Attempt, Attributes, Holder, Lease, LeaseKey, LeaseOptions, Locker, Metrics, StoreError,
    Waiting,
};
use lease_memory::MemoryStore;
use tokio::time::{sleep, timeout};

use crate::key;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// A store that leaves something out of its answers to claims.
#[derive(Debug, Clone)]
struct Terse {
    store: Faulty<MemoryStore>,
    leave_out: fn(&mut Obtained),
}

impl Terse {
    /// Its refusals name no expiry.
    fn without_expiry(store: Faulty<MemoryStore>) -> Self {
        Self {
            store,
            leave_out: |answer| {
                if let Obtained::Held(holder) = answer {
                    holder.expires_in = None;
                }
            },
        }
    }

    /// It does not know which request of a claim was granted.
    fn without_requests(store: Faulty<MemoryStore>) -> Self {
        Self {
            store,
            leave_out: |answer| {
                if let Obtained::Granted(grant, _) = answer {
                    grant.request = None;
                }
            },
        }
    }
}

#[async_trait]
impl LockStore for Terse {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut answer = self.store.obtain(claim).await?;
        (self.leave_out)(&mut answer);
        Ok(answer)
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
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
    let locker = racing(Terse::without_expiry(faulty.clone()));
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
    let locker = racing(Terse::without_expiry(faulty.clone()));
    lose_a_grant(&faulty, &locker).await;
    let start = BootClock::new().now();

    let wait = timeout(TTL * 100, locker.wait_until_obtained(&key("job"))).await;

    assert!(wait.unwrap().unwrap().is_held());
    let took = BootClock::new().now().since(start);
    assert!(TTL * 3 < took && took < TTL * 5, "{took:?}");
}

/// The last request of the old claim is in flight when the next attempt drops this claim and makes a new one.
#[derive(Debug)]
struct Unread;

impl Metrics for Unread {}

/// The claim is answered before the deadline, and the heartbeat that confirms it after the deadline. With metrics, the
/// clock was read at the first answer.
#[tokio::test(start_paused = true)]
async fn grant_that_is_confirmed_after_its_deadline_is_no_lease() {
    for has_metrics in [false, true] {
        let faulty = Faulty::new(MemoryStore::new());
        let ttl = SECOND * 10;
        let locker = Locker::new(Terse::without_requests(faulty.clone()))
            .with_options(LeaseOptions::new(ttl).unwrap().with_waiting(Waiting::Racing));
        let locker = if has_metrics { locker.with_metrics(Arc::new(Unread)) } else { locker };
        faulty.next(Call::Obtain, Fault::LoseReply);
        faulty.every(Call::Obtain, Fault::Fail);
        assert!(locker.obtain(&key("job")).await.is_err());
        // Less than half of the ttl.
        sleep(ttl * 2 / 5).await;

        faulty.heal();
        faulty.next(Call::Obtain, Fault::DelayReply(SECOND * 3));
        faulty.next(Call::Heartbeat, Fault::DelayReply(SECOND * 3));
        let attempt = locker.obtain(&key("job")).await;

        assert_eq!(faulty.calls(Call::Heartbeat), 1);
        assert!(attempt.is_err(), "metrics: {has_metrics}: {attempt:?}");
    }
}

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
