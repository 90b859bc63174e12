//! `lease jobs pause`, `resume`, `trigger` and `repair`.

use lease_core::LeaseKey;
use lease_scheduler::{
    JobControl, MarkReset, Trigger, TriggerAnswer, TriggerNumber, TriggerState, Triggered,
};
use tokio::time::timeout;

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::jobs::arguments::TriggerArguments;
use crate::output::Record;
use crate::output::messages::{held_by, say};

pub(super) async fn pause(
    context: &Context,
    jobs: &JobControl,
    job: &LeaseKey,
    why: &str,
) -> Result<Exit, Failure> {
    check(jobs, job).await?;
    jobs.pause(job.as_str(), why).await?;
    context.output.print(&Record::new().with("paused", job.as_str()))?;
    Ok(Exit::SUCCESS)
}

pub(super) async fn resume(
    context: &Context,
    jobs: &JobControl,
    job: &LeaseKey,
) -> Result<Exit, Failure> {
    check(jobs, job).await?;
    jobs.resume(job.as_str()).await?;
    context.output.print(&Record::new().with("resumed", job.as_str()))?;
    Ok(Exit::SUCCESS)
}

pub(super) async fn trigger(
    context: &Context,
    jobs: &JobControl,
    TriggerArguments { job, arguments, id, wait, detach }: TriggerArguments,
) -> Result<Exit, Failure> {
    check(jobs, &job).await?;
    let trigger = arguments
        .into_iter()
        .fold(Trigger::new(), |all, (name, value)| all.with_argument(name, value));
    let trigger = id.into_iter().fold(trigger, Trigger::with_id);
    let (number, is_new) = match jobs.trigger(job.as_str(), &trigger).await? {
        Triggered::Accepted(number) => (number, true),
        Triggered::Repeated(number) => {
            say(&format!("{job} was triggered with this id before"));
            (number, false)
        }
        Triggered::OtherWaits(number) => {
            say(&format!("trigger {number} of {job} waits already"));
            return Ok(Exit::BUSY);
        }
        other => return Err(Failure::own("unknown result of a trigger", format!("{other:?}"))),
    };
    let state = match (detach, is_new) {
        (true, true) => TriggerState::Waiting,
        (true, false) => jobs.trigger_state(job.as_str(), number).await?,
        (false, _) => match timeout(wait, jobs.wait_for_answer(job.as_str(), number)).await {
            Ok(state) => state?,
            Err(_elapsed) => withdraw(jobs, &job, number).await?,
        },
    };
    let name = match state {
        TriggerState::Answered(answer) => answer.name(),
        TriggerState::Waiting => "waiting",
        _ => "forgotten",
    };
    context.output.print(
        &Record::new().with("job", job.as_str()).with("trigger", number.get()).with("state", name),
    )?;
    Ok(match state {
        TriggerState::Answered(TriggerAnswer::Started) => Exit::SUCCESS,
        TriggerState::Waiting if detach => Exit::SUCCESS,
        TriggerState::Answered(TriggerAnswer::JobRuns) => Exit::BUSY,
        // A trigger that still waits could not be withdrawn: a scheduler is about to start it, or has died.
        TriggerState::Waiting
        | TriggerState::Answered(TriggerAnswer::Withdrawn | TriggerAnswer::Expired) => {
            say("no scheduler started the run in time");
            Exit::UNAVAILABLE
        }
        _ => Exit::NO,
    })
}

/// Withdraws a trigger that was not answered in time, and returns its state.
async fn withdraw(
    jobs: &JobControl,
    job: &LeaseKey,
    number: TriggerNumber,
) -> Result<TriggerState, Failure> {
    jobs.withdraw(job.as_str(), number).await?;
    Ok(jobs.trigger_state(job.as_str(), number).await?)
}

pub(super) async fn repair(
    context: &Context,
    jobs: &JobControl,
    job: &LeaseKey,
) -> Result<Exit, Failure> {
    check(jobs, job).await?;
    let reset = match jobs.reset_mark(job.as_str()).await? {
        MarkReset::Reset(mark) => Some(mark.to_string()),
        MarkReset::Held(holder) => {
            say(&held_by(job, &holder));
            return Ok(Exit::BUSY);
        }
        _ => None,
    };
    if reset.is_none() {
        say("no tick ahead of this clock is marked as run");
    }
    context.output.print(&Record::new().with("job", job.as_str()).with("reset", reset))?;
    Ok(Exit::SUCCESS)
}

/// Refuses a job that no scheduler has ever started.
async fn check(jobs: &JobControl, job: &LeaseKey) -> Result<(), Failure> {
    match jobs.job(job.as_str()).await? {
        Some(_) => Ok(()),
        None => Err(Failure::new(Exit::USAGE, format!("no job has the name {job}"))),
    }
}
