//! `lease jobs list` and `lease jobs history`.

use lease_core::FencingToken;
use lease_scheduler::{JobControl, JobStatus, PastRun, RunQuery, TriggerNumber};

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::jobs::arguments::{HistoryArguments, ending_name};
use crate::output::Record;

pub(super) async fn list(
    context: &Context,
    jobs: &JobControl,
    prefix: &str,
) -> Result<Exit, Failure> {
    let records: Vec<_> = jobs.list(prefix).await?.iter().map(job).collect();
    context.output.list(&records)?;
    Ok(Exit::SUCCESS)
}

pub(super) async fn history(
    context: &Context,
    jobs: &JobControl,
    arguments: &HistoryArguments,
) -> Result<Exit, Failure> {
    let query = query(arguments);
    let histories = match &arguments.job {
        Some(job) => vec![(job.clone(), jobs.history(job.as_str(), &query).await?)],
        None => jobs.histories("", &query).await?,
    };
    let runs =
        histories.iter().flat_map(|(job, runs)| runs.iter().map(|run| line(job.as_str(), run)));
    let records: Vec<_> = runs.collect();
    context.output.list(&records)?;
    Ok(Exit::SUCCESS)
}

fn query(arguments: &HistoryArguments) -> RunQuery {
    let HistoryArguments { since, until, ending, limit, job: _ } = arguments;
    let mut query = RunQuery::new();
    if let Some(since) = since {
        query = query.from(*since);
    }
    if let Some(until) = until {
        query = query.until(*until);
    }
    if let Some(ending) = ending {
        query = query.ending(*ending);
    }
    if let Some(limit) = limit {
        query = query.limit(*limit);
    }
    query
}

fn job(job: &JobStatus) -> Record {
    let last = job.runs.first();
    let pause = job.paused.as_ref();
    Record::new()
        .with("job", job.name.as_str())
        .with("schedule", job.schedule_text.as_deref())
        .with("next", job.next_ticks(1).first().map(ToString::to_string))
        .with("paused", pause.map(|pause| pause.since.to_string()))
        .with("why", pause.map(|pause| pause.why.as_str()))
        .with("last", last.map(|run| run.began.to_string()))
        .with("ending", last.map(|run| ending_name(run.ending)))
        .with("by", last.map(|run| run.by.as_str()))
        .with("waiting", job.waiting.map(TriggerNumber::get))
        .with("mark_ahead", job.mark_ahead.map(|mark| mark.to_string()))
        .with("error", job.error.as_deref())
}

fn line(job: &str, run: &PastRun) -> Record {
    Record::new()
        .with("job", job)
        .with("scheduled", run.scheduled.to_string())
        .with("attempt", run.attempt)
        .with("began", run.began.to_string())
        .with("ended", run.ended.map(|ended| ended.to_string()))
        .with("ending", ending_name(run.ending))
        .with("by", run.by.as_str())
        .with("token", FencingToken::get(run.token))
        .with("trigger", run.trigger.map(TriggerNumber::get))
        .with("note", run.note.as_str())
}
