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
pub mod names;

pub use adapter::{LeaseMetrics, LeaseMetricsBuilder};
#[cfg(feature = "export")]
#[cfg_attr(docsrs, doc(cfg(feature = "export")))]
pub use export::ExporterMetrics;
#[cfg(feature = "scheduler")]
#[cfg_attr(docsrs, doc(cfg(feature = "scheduler")))]
pub use jobs::SchedulerMetrics;
#[cfg(feature = "kinesis")]
#[cfg_attr(docsrs, doc(cfg(feature = "kinesis")))]
pub use kinesis::KinesisMetrics;
