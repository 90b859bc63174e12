//! What the tests share: real servers, and what comes between them and us.
//!
//! Not for use outside of tests: helpers here panic where something is missing.
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot be set up fails")]

pub mod claims;
pub mod dynamodb;
pub mod kinesis;
pub mod latency;
pub mod line;
pub mod measure;
mod process;
pub mod promises;
pub mod proxy;
pub mod redis;
mod redis_sentinel;
pub mod redis_tls;
pub mod tools;
