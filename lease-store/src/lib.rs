#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod any_store;
mod connect;
mod error;
mod scheme;
mod stores;
#[cfg_attr(
    not(any(
        feature = "memory",
        feature = "sqlite",
        feature = "redis",
        feature = "dynamodb",
        feature = "postgres",
        feature = "etcd",
        feature = "kubernetes"
    )),
    expect(dead_code, reason = "no store reads a URL")
)]
mod url;

pub use any_store::AnyStore;
pub use connect::{connect, connect_table};
