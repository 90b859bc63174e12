#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ask;
mod clock;
mod switch;

pub use clock::{SkewedWallClock, SystemWallClock, WallClock};
pub use switch::{Switch, TableSwitch};
