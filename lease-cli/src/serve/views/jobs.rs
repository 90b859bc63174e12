//! The view of jobs: schedule, next tick, pause, and the last runs.

use std::sync::Arc;

use lease_core::StoreError;
use lease_scheduler::{JobControl, JobStatus, PastRun, TriggerNumber};
use serde_json::{Value, json};

use crate::jobs::arguments::ending_name;
use crate::serve::feed::View;
use crate::serve::rows::Rows;

#[derive(Debug)]
pub(crate) struct Jobs {
    control: JobControl,
    prefix: String,
}

impl Jobs {
    pub(crate) fn new(control: JobControl, prefix: String) -> Self {
        Self { control, prefix }
    }
}

impl View for Jobs {
    async fn read(&mut self) -> Result<Arc<Rows>, StoreError> {
        let mut rows = Rows::now();
        for job in self.control.list(&self.prefix).await? {
            rows.add(job.name.as_str(), None, fields(&job));
        }
        Ok(Arc::new(rows))
    }
}

fn fields(job: &JobStatus) -> Value {
    let pause = job.paused.as_ref();
    json!({
        "schedule": job.schedule_text,
        "next": job.next_ticks(1).first().map(ToString::to_string),
        "paused": pause.map(|pause| pause.since.to_string()),
        "why": pause.map(|pause| pause.why.as_str()),
        "waiting": job.waiting.map(|number| TriggerNumber::get(number).to_string()),
        "markAhead": job.mark_ahead.map(|mark| mark.to_string()),
        "error": job.error,
        "runs": job.runs.iter().take(RUNS).map(run).collect::<Vec<_>>(),
    })
}

fn run(run: &PastRun) -> Value {
    json!({
        "ending": ending_name(run.ending),
        "scheduled": run.scheduled.to_string(),
        "began": run.began.to_string(),
        "ended": run.ended.map(|ended| ended.to_string()),
        "attempt": run.attempt,
        "by": run.by,
        "note": run.note,
    })
}

const RUNS: usize = 10;
