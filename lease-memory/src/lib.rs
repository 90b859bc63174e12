#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod record;
mod records;
mod store;
mod watch;

pub use store::MemoryStore;
