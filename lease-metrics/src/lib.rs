#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
mod instruments;
#[cfg(feature = "scheduler")]
mod jobs;
pub mod names;

pub use adapter::{LeaseMetrics, LeaseMetricsBuilder};
#[cfg(feature = "scheduler")]
#[cfg_attr(docsrs, doc(cfg(feature = "scheduler")))]
pub use jobs::SchedulerMetrics;
