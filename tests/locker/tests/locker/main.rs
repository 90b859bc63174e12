//! Tests of a locker and its leases, on the memory store and in paused time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod counting;
mod hand_overs;
mod keeping;
mod losing;
mod obtaining;
mod releasing;
mod runtimes;
mod spans;
mod waiting;

use std::time::Duration;

use lease_core::store::{BootClock, Clock};
use lease_core::{Lease, LeaseKey, Locker};

const TTL: Duration = Duration::from_secs(30);

async fn obtained(locker: &Locker, name: &str) -> Lease {
    locker.obtain(&key(name)).await.unwrap().into_lease().unwrap()
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

fn now() -> lease_core::store::Moment {
    BootClock::new().now()
}
