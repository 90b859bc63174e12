#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ask;
mod clock;
mod error;
pub mod export;
pub mod queue;
#[cfg(feature = "redis")]
mod redis;
mod switch;

pub use clock::{SkewedWallClock, SystemWallClock, WallClock};
pub use error::{ServiceError, ServiceErrorKind};
#[cfg(feature = "redis")]
pub use redis::RedisLink;
pub use switch::{Switch, TableSwitch};
