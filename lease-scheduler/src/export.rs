//! A job that runs an exporter.

use async_trait::async_trait;
use lease_core::{InvalidInput, LeaseKey};
use lease_export::{Exported, Exporter, Flushed};

use crate::job::{Job, JobContext, JobResult, Work};
use crate::schedule::Schedule;

/// Makes a job that [exports](Exporter::export): it collects closed buckets, and sends pending
/// events. By default, the job runs at the start of each minute, and on demand. [`Job::on`] sets
/// another schedule.
///
/// The minute is the default because the exporter counts failed exports: it gives up an event after
/// 60 of them, so after an hour of failures.
///
/// The run's note has the number of events that were sent. The run fails if events stay pending
/// because the sink has not taken them, or if buckets could not be collected. The next run tries
/// them again. A run finishes, with a note, if export is disabled or another process exports.
///
/// # Errors
///
/// Fails if `name` is the exporter's key: the job would hold the lease that the exporter needs.
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
/// use lease_core::store::LeaseTable;
/// use lease_export::Exporter;
/// use lease_scheduler::{Scheduler, export_job};
///
/// async fn run(
///     table: impl LeaseTable + Clone,
///     exporter: Exporter, // its key is "orders"
/// ) -> Result<(), lease_core::InvalidInput> {
///     Scheduler::builder(Locker::new(table.clone()), table)
///         .with_job(export_job("export-orders".parse()?, exporter)?)
///         .build()?
///         .run()
///         .await;
///     Ok(())
/// }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "export")))]
pub fn export_job(name: LeaseKey, exporter: Exporter) -> Result<Job, InvalidInput> {
    if &name == exporter.key() {
        return Err(InvalidInput::new(format!(
            "job {name} has the key of its exporter: the job would hold the exporter's lease"
        )));
    }
    let every_minute = Schedule::cron("* * * * *", "UTC")?;
    Ok(Job::of(name, Export(exporter)).on(every_minute))
}

struct Export(Exporter);

#[async_trait]
impl Work for Export {
    async fn run(&self, job: JobContext) -> JobResult {
        match self.0.export().await? {
            Flushed::Done(exported) => end(exported, &job),
            Flushed::Held(holder) => {
                job.note(format!("{} exports", holder.lessee));
                Ok(())
            }
            _ => {
                job.note("export is disabled");
                Ok(())
            }
        }
    }
}

fn end(exported: Exported, job: &JobContext) -> JobResult {
    let Exported { sent, failed, dead_lettered, set_aside, sink_error, source_error, .. } =
        exported;
    let mut note = format!("{sent} events sent");
    for (count, what) in [
        (failed, "stay pending"),
        (dead_lettered, "went to the dead letters"),
        (set_aside, "were set aside"),
    ] {
        if count > 0 {
            note = format!("{note}, {count} {what}");
        }
    }
    job.note(note);
    if failed > 0 {
        let unnamed = || format!("the sink has not taken {failed} events").into();
        return Err(sink_error.map_or_else(unnamed, Into::into));
    }
    source_error.map_or(Ok(()), |error| Err(error.into()))
}
