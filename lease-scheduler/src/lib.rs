#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ask;
mod clock;
mod history;
mod job;
mod outcome;
mod run;
mod schedule;
mod scheduler;
mod switch;
mod ticking;

pub use clock::{SkewedWallClock, SystemWallClock, WallClock};
pub use history::{Ending, PastRun};
pub use job::{Job, JobContext, JobError, JobResult, Work};
pub use outcome::{BodyRun, DisabledBy, JobMetrics, Outcome, Run, Skip};
pub use schedule::{Missed, Schedule};
pub use scheduler::{Scheduler, SchedulerBuilder, SchedulerHandle};
pub use switch::{Switch, TableSwitch};
