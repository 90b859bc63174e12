#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod command_loop;
mod control;
#[cfg(feature = "export")]
mod export;
mod handle;
mod history;
mod job;
mod job_record;
mod job_set;
mod outcome;
mod run;
mod schedule;
mod scheduler;
mod text;
mod tick_loop;

/// Defines the time types in this crate's interface. Programs must use the same version of jiff.
pub use jiff;

pub use clock::{SkewedWallClock, SystemWallClock, WallClock};
pub use control::mark_reset::MarkReset;
pub use control::trigger::{Trigger, TriggerAnswer, TriggerNumber, TriggerState, Triggered};
pub use control::{JobControl, JobStatus, Pause, RunQuery};
#[cfg(feature = "export")]
pub use export::export_job;
pub use handle::SchedulerHandle;
pub use history::{Ending, PastRun};
pub use job::{Concurrency, Job, JobContext, JobError, JobResult, Work};
pub use lease_core::{Switch, TableSwitch};
pub use outcome::{BodyRun, DisabledBy, JobMetrics, Outcome, Run, Skip};
pub use schedule::{Misfire, MissedTicks, Schedule};
pub use scheduler::{Scheduler, SchedulerBuilder};
