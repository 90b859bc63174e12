#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod coexistence;
mod lease_taker;
mod liveness;
mod neighbours;
mod observing;
mod row;
mod schema;
mod store;
mod table;
mod write;

pub use crate::builder::KclTableBuilder;
pub use crate::coexistence::KclCoexistence;
pub use crate::store::KclTable;

#[cfg(test)]
mod golden;
