//! A process that holds one lease until it is killed, for tests with several processes.
//!
//! `lease-worker ADDRESS KEY TTL_MS` prints a line for the grant of the lease, and another line for
//! its loss.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a worker that panics fails its test; the test reads the printed lines"
)]

use std::time::Duration;

use lease_core::{LeaseOptions, Locker};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::dynamodb::client_of;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("ADDRESS KEY TTL_MS");
    let (address, key, ttl) = (next(), next(), next());
    let address = address.parse().expect("an address and port");
    let ttl = Duration::from_millis(ttl.parse().expect("milliseconds"));
    let options = LeaseOptions::new(ttl).expect("a ttl within range");
    let locker =
        Locker::new(DynamoDbStore::new(client_of(address), "leases")).with_options(options);

    let key = key.parse().expect("a key");
    let lease = locker.wait_until_obtained(&key).await.expect("a lease");
    println!("obtained under token {}", lease.token());
    println!("lost: {}", lease.lost().await);
}
