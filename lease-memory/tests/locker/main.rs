//! Tests of the locker on the memory store.

#![expect(clippy::unwrap_used, reason = "a test")]

mod attributes;
mod dropped;
mod in_turn;
mod late_ends;
mod neighbours;
mod own_thread;
mod promises;
mod racing;
mod reasons;
mod sessions;
mod silence;
mod unanswered;
mod writes;

use lease_core::{Lease, LeaseKey, Locker};

async fn obtained(locker: &Locker, name: &str) -> Lease {
    locker.obtain(&key(name)).await.unwrap().into_lease().unwrap()
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}
