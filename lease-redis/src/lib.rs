#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod connection;
mod diagnose;
mod error;
mod key_space;
mod lock;
mod node;
mod script;
mod store;
mod table;
mod value;
mod watch;

pub use config::RedisStoreBuilder;
pub use store::RedisStore;
