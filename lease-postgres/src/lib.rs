#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attributes;
mod builder;
mod connection;
mod error;
mod reply;
mod statements;
mod store;
mod table;

pub use builder::PostgresStoreBuilder;
pub use store::PostgresStore;
