//! How often an obtain and a release read a clock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::readings;
use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::locker::Locker;
use crate::metrics::{Metrics, StoreOperation};
use crate::store::grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained};
use crate::store::lock_store::LockStore;
use crate::token::FencingToken;

/// Grants each claim at once.
#[derive(Debug)]
struct Granting;

#[async_trait]
impl LockStore for Granting {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let grant = claim.granted(FencingToken::new(1).unwrap());
        Ok(Obtained::Granted(grant, claim.attributes.clone()))
    }

    async fn heartbeat(&self, _grant: &Grant, _beat: Beat) -> Result<Heartbeat, StoreError> {
        Ok(Heartbeat::Extended)
    }

    async fn release(&self, _grant: &Grant, _for: Option<Duration>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn adopt(&self, _grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.obtain(claim).await
    }

    async fn holder(&self, _key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        Ok(None)
    }
}

#[derive(Debug, Default)]
struct Times(parking_lot::Mutex<Vec<(&'static str, Duration)>>);

impl Metrics for Times {
    fn store_request(&self, operation: StoreOperation, latency: Duration, _is_ok: bool) {
        self.0.lock().push((operation.name(), latency));
    }

    fn obtained(&self, _key: &LeaseKey, waited: Duration) {
        self.0.lock().push(("waited", waited));
    }

    fn released(&self, _key: &LeaseKey, held: Duration) {
        self.0.lock().push(("held", held));
    }
}

/// The readings of an obtain, of a wait for a free key, and of a release.
async fn readings_of(locker: &Locker) -> [u64; 3] {
    let key: LeaseKey = "job".parse().unwrap();
    let start = readings::so_far();
    let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();
    let obtained = readings::so_far();
    lease.release().await.unwrap();
    let released = readings::so_far();
    let lease = locker.wait_until_obtained(&key).await.unwrap();
    let waited = readings::so_far();
    lease.release().await.unwrap();
    [obtained - start, waited - released, released - obtained]
}

#[tokio::test]
async fn metrics_share_readings_of_the_clock() {
    let times = Arc::new(Times::default());
    let plain = Locker::new(Granting);
    let counted = Locker::new(Granting).with_metrics(Arc::clone(&times) as Arc<dyn Metrics>);

    let [obtain, wait, release] = readings_of(&plain).await;
    let [counted_obtain, counted_wait, counted_release] = readings_of(&counted).await;

    assert_eq!([obtain, release], [3, 1]);
    assert_eq!(counted_obtain - obtain, 0, "an obtain");
    assert_eq!(counted_wait - wait, 2, "the begin and the end of a wait");
    assert_eq!(counted_release - release, 2, "the request of a release");
    let names: Vec<_> = times.0.lock().iter().map(|(name, _)| *name).collect();
    assert_eq!(names[..4], ["obtain", "waited", "release", "held"]);
}
