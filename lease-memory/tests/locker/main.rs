//! Tests of the locker that need no store but this one.

#![expect(clippy::unwrap_used, reason = "a test")]

mod dropped;
mod late_ends;
mod neighbours;
mod own_thread;
mod promises;
mod reasons;
mod silence;

use lease_core::{Lease, LeaseKey, Locker};

async fn obtained(locker: &Locker, name: &str) -> Lease {
    locker.obtain(&key(name)).await.unwrap().lease().unwrap()
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}
