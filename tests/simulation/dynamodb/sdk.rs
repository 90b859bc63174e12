//! The SDK of one process, with nothing in it that a seed does not decide.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition, TokenBucket};
use aws_sdk_dynamodb::config::{AsyncSleep, BehaviorVersion, HttpClient, Region, Sleep};
use aws_smithy_async::time::TimeSource;
use lease_core::conformance::WorldTime;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::front_end::WORLD_BEGINS;

/// A client whose requests go by `http`.
pub(crate) fn client(http: impl HttpClient + 'static, wall: WallClock, seed: u64) -> Client {
    let mut random = StdRng::seed_from_u64(seed);
    let retries = if random.random() {
        RetryConfig::standard().with_max_attempts(random.random_range(2..=4))
    } else {
        RetryConfig::disabled()
    };
    // One of its own: all clients of a program share theirs otherwise, across trials.
    let partition = RetryPartition::custom("trial").token_bucket(TokenBucket::default()).build();
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url("http://dynamodb.model")
        .allow_no_auth()
        .http_client(http)
        .time_source(wall)
        .sleep_impl(Pauses(Mutex::new(random)))
        .retry_config(retries)
        .retry_partition(partition)
        .build();
    Client::from_conf(config)
}

/// The wall clock of a machine: wrong, and set at times. Nobody may judge a lease by it.
#[derive(Debug, Clone)]
pub(crate) struct WallClock {
    pub(crate) time: WorldTime,
    /// How far it is off, in milliseconds.
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

/// Pauses before retries. Their jitter is the SDK's own otherwise, and from no seed; and they
/// are as long as a lease here.
#[derive(Debug)]
struct Pauses(Mutex<StdRng>);

impl AsyncSleep for Pauses {
    fn sleep(&self, _length: Duration) -> Sleep {
        let pause = Duration::from_millis(self.0.lock().unwrap().random_range(0..100));
        Sleep::new(tokio::time::sleep(pause))
    }
}
