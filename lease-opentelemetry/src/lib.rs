#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
#[cfg(feature = "export")]
mod export;
mod instruments;
#[cfg(feature = "scheduler")]
mod jobs;
#[cfg(feature = "kinesis")]
mod kinesis;

pub use adapter::{LeaseMeter, LeaseMeterBuilder};
#[cfg(feature = "export")]
#[cfg_attr(docsrs, doc(cfg(feature = "export")))]
pub use export::ExporterMeter;
#[cfg(feature = "scheduler")]
#[cfg_attr(docsrs, doc(cfg(feature = "scheduler")))]
pub use jobs::SchedulerMeter;
#[cfg(feature = "kinesis")]
#[cfg_attr(docsrs, doc(cfg(feature = "kinesis")))]
pub use kinesis::KinesisMeter;
