//! `lease jobs`: lists and commands the jobs of lease-scheduler.
//!
//! [`arguments`] has the command line, [`listing`] shows jobs and their runs, [`commanding`] pauses, resumes, triggers and
//! repairs a job.

pub(crate) mod arguments;
mod commanding;
mod listing;

use lease_core::LeaseOptions;
use lease_scheduler::JobControl;

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::jobs::arguments::JobsCommand;
use crate::store;

/// Runs a command on jobs. Without one, lists all jobs.
pub(crate) async fn jobs(context: &Context, command: Option<JobsCommand>) -> Result<Exit, Failure> {
    let jobs = control(context).await?;
    let exit = match command {
        None => listing::list(context, &jobs, "").await,
        Some(JobsCommand::List { prefix }) => listing::list(context, &jobs, &prefix).await,
        Some(JobsCommand::History(query)) => listing::history(context, &jobs, &query).await,
        Some(JobsCommand::Pause { job, why }) => {
            commanding::pause(context, &jobs, &job, &why).await
        }
        Some(JobsCommand::Resume { job }) => commanding::resume(context, &jobs, &job).await,
        Some(JobsCommand::Trigger(trigger)) => commanding::trigger(context, &jobs, trigger).await,
        Some(JobsCommand::Repair { job }) => commanding::repair(context, &jobs, &job).await,
    };
    jobs.close().await;
    exit
}

async fn control(context: &Context) -> Result<JobControl, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let none = || Failure::new(Exit::CONFIGURATION, "this store keeps no records");
    let table = store.table().ok_or_else(none)?;
    let locker = store::locker(store, LeaseOptions::default())?;
    Ok(JobControl::new(&locker, table))
}
