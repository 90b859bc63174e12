#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod in_turn;
mod queues;
mod record;
mod records;
mod sessions;
mod store;
mod watch;

pub use store::MemoryStore;
