#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod account;
mod clock;
mod error;
pub mod export;
mod history;
mod job;
mod outcome;
pub mod queue;
#[cfg(feature = "redis")]
mod redis;
mod run;
mod schedule;
mod scheduler;
mod standing;
mod switch;
mod ticking;

/// The crate of the times in this crate's interface: its version is the one that programs must use.
pub use jiff;

pub use account::MarkReset;
pub use clock::{SkewedWallClock, SystemWallClock, WallClock};
pub use error::{ServiceError, ServiceErrorKind};
pub use history::{Ending, PastRun};
pub use job::{Job, JobContext, JobError, JobResult, Work};
pub use outcome::{BodyRun, DisabledBy, JobMetrics, Outcome, Run, Skip};
#[cfg(feature = "redis")]
pub use redis::RedisLink;
pub use schedule::{Missed, MissedTicks, Schedule};
pub use scheduler::{Scheduler, SchedulerBuilder, SchedulerHandle};
pub use switch::{Switch, TableSwitch};
