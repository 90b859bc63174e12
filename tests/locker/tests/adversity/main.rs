//! A locker under adverse conditions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attempts;
mod hand_overs;
mod hanging;
mod neglect;
mod releases;
mod stalls;
mod waiting;

use std::future::Future;
use std::time::Duration;

use lease_core::{Lease, LeaseKey, Locker};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(30);

async fn obtained(locker: &Locker, name: &str) -> Lease {
    locker.obtain(&key(name)).await.unwrap().into_lease().unwrap()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(TTL * 20, what).await.unwrap()
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}
