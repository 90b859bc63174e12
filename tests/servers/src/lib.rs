//! Servers for tests, a proxy that fails on demand, and helpers that test programs share.
//!
//! Start at [`redis`], [`dynamodb`] or [`kinesis`], each behind the feature of its name, so that a
//! test of one store compiles nothing of the others; [`proxy`] stands between a client and any of
//! them. For tests only: the helpers panic if something is missing.
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot be set up fails")]

#[cfg(feature = "sdk")]
pub mod aws;
pub mod claims;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "kinesis")]
pub mod kinesis;
pub mod measure;
#[cfg(any(feature = "dynamodb", feature = "kinesis"))]
mod process;
pub mod promises;
pub mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod tools;
pub mod warnings;
