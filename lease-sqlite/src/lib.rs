#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attributes;
mod builder;
mod database;
mod error;
mod file;
mod functions;
mod in_turn;
mod machine;
mod requests;
mod row;
mod sessions;
mod statements;
mod store;
mod table;
mod threads;

pub use builder::SqliteStoreBuilder;
#[cfg(feature = "simulation")]
pub use machine::Machine;
pub use store::SqliteStore;
