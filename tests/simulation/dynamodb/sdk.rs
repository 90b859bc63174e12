//! The SDK of one process, with time and random numbers from the seed.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition, TokenBucket};
use aws_sdk_dynamodb::config::{AsyncSleep, Sleep};
use aws_smithy_async::time::TimeSource;
use lease_core::conformance::WorldTime;
use lease_test_servers::dynamodb_model;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::front_end::WORLD_BEGINS;
use super::wire::Wire;

pub(crate) fn client(wire: Wire, wall: WallClock, seed: u64) -> Client {
    let mut random = StdRng::seed_from_u64(seed);
    let retries = if random.random() {
        RetryConfig::standard().with_max_attempts(random.random_range(2..=4))
    } else {
        RetryConfig::disabled()
    };
    // All clients of the program share the default partition, with its retry quota. A separate
    // partition keeps the trial independent of other trials.
    let partition = RetryPartition::custom("trial").token_bucket(TokenBucket::default()).build();
    let config = dynamodb_model::config(move |request| wire.send(request))
        .time_source(wall)
        .sleep_impl(Pauses(Mutex::new(random)))
        .retry_config(retries)
        .retry_partition(partition)
        .build();
    Client::from_conf(config)
}

/// The clock is wrong, and steps, so a store must not judge a lease by this clock.
#[derive(Debug, Clone)]
pub(crate) struct WallClock {
    pub(crate) time: WorldTime,
    /// The clock's offset in milliseconds.
    pub(crate) off: Arc<AtomicI64>,
}

impl WallClock {
    pub(crate) fn since_1970(&self) -> Duration {
        let off = self.off.load(Ordering::SeqCst);
        let true_time = WORLD_BEGINS + self.time.now();
        let length = Duration::from_millis(off.unsigned_abs());
        if off < 0 { true_time.saturating_sub(length) } else { true_time + length }
    }
}

impl TimeSource for WallClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.since_1970()
    }
}

/// The SDK's own pauses before retries are as long as a lease, and their jitter has no seed.
#[derive(Debug)]
struct Pauses(Mutex<StdRng>);

impl AsyncSleep for Pauses {
    fn sleep(&self, _length: Duration) -> Sleep {
        let pause = Duration::from_millis(self.0.lock().unwrap().random_range(0..100));
        Sleep::new(tokio::time::sleep(pause))
    }
}
