//! Servers for tests, a proxy that fails on demand, and helpers that test programs share.
//!
//! Start at [`redis`], [`postgres`], [`etcd`], [`kubernetes`], [`dynamodb`] or [`kinesis`]. Each module has its own
//! feature, so a test of one store does not compile the others. [`proxy`] injects faults between client and
//! server. The helpers panic if something is missing.
#![expect(clippy::expect_used, clippy::panic, reason = "a test without its servers fails")]

#[cfg(feature = "sdk")]
pub mod aws;
pub mod claims;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "model")]
pub mod dynamodb_model;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod gate_log;
#[cfg(feature = "kinesis")]
pub mod kinesis;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod measure;
#[cfg(any(
    feature = "dynamodb",
    feature = "etcd",
    feature = "kinesis",
    feature = "postgres",
    feature = "prometheus",
    feature = "redis"
))]
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "prometheus")]
pub mod prometheus;
pub mod promises;
pub mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod search;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "stream")]
pub mod stream;
pub mod sync;
pub mod tools;
pub mod warnings;
