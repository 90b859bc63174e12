#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod record;
mod shelf;
mod store;
mod watch;

pub use store::MemoryStore;
