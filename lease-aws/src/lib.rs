#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod sdk_error;
#[cfg(feature = "dynamodb")]
pub mod table_client;
