#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
mod instruments;

pub use adapter::{LeaseMeter, LeaseMeterBuilder};
