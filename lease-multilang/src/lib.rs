#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod child;
#[cfg(unix)]
pub mod daemon;
pub mod protocol;
