//! This library: a store without a locker, and a locker.

use std::sync::Arc;

use async_trait::async_trait;
use lease_core::store::{Claim, Grant, LockStore, Nonce, Obtained};
use lease_core::{Attempt, Lease, LeaseKey, LeaseOptions, Lessee, Locker, Metrics};
use lease_metrics::LeaseMetrics;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::TTL;
use crate::lock::{Held, Lock};
use crate::locks::counting::{Counting, Dropping};

pub(crate) struct Store<S>(pub(crate) S);

struct StoreHeld<S> {
    store: S,
    grant: Grant,
}

#[async_trait]
impl<S: LockStore + Clone> Lock for Store<S> {
    fn name(&self) -> &'static str {
        "this library's store"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let lessee = Lessee::new("bench").unwrap();
        let claim = Claim::new(LeaseKey::new(key).unwrap(), lessee, Nonce::random(), TTL);
        match self.0.obtain(&claim).await {
            Ok(Obtained::Granted(grant, _)) => {
                Some(Box::new(StoreHeld { store: self.0.clone(), grant }))
            }
            Ok(Obtained::Held(_)) | Err(_) => None,
        }
    }
}

#[async_trait]
impl<S: LockStore> Held for StoreHeld<S> {
    async fn free(self: Box<Self>) {
        // A lease that was not released makes the next cycle fail.
        drop(self.store.release(&self.grant, None).await);
    }
}

pub(crate) struct WithLocker {
    name: &'static str,
    locker: Locker,
}

impl WithLocker {
    pub(crate) fn new(store: impl LockStore) -> Self {
        let locker = Locker::new(store).with_options(LeaseOptions::new(TTL).unwrap());
        Self { name: "this library", locker }
    }

    /// The same as [`new`](Self::new), with another name.
    pub(crate) fn again(store: impl LockStore) -> Self {
        Self { name: "this library, once more", ..Self::new(store) }
    }

    /// Reports to a recorder for Prometheus.
    pub(crate) fn with_metrics(store: impl LockStore) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = metrics::with_local_recorder(&recorder, || LeaseMetrics::new("redis"));
        Self::reporting("this library, with metrics", store, Arc::new(metrics))
    }

    pub(crate) fn counting(store: impl LockStore) -> Self {
        Self::reporting("this library, with atomic counters", store, Arc::<Counting>::default())
    }

    pub(crate) fn dropping_events(store: impl LockStore) -> Self {
        Self::reporting("this library, with dropped events", store, Arc::new(Dropping))
    }

    fn reporting(name: &'static str, store: impl LockStore, metrics: Arc<dyn Metrics>) -> Self {
        let Self { locker, .. } = Self::new(store);
        Self { name, locker: locker.with_metrics(metrics) }
    }
}

#[async_trait]
impl Lock for WithLocker {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let key = LeaseKey::new(key).unwrap();
        // Makes a single attempt first, since most keys are free.
        let lease = match self.locker.obtain(&key).await {
            Ok(Attempt::Obtained(lease)) => lease,
            Ok(Attempt::Held(_)) => self.locker.wait_until_obtained(&key).await.ok()?,
            Err(_) => return None,
        };
        Some(Box::new(lease))
    }
}

#[async_trait]
impl Held for Lease {
    async fn free(self: Box<Self>) {
        drop(self.release().await);
    }
}
