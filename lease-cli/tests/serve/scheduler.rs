//! A scheduler in the process of the test, on the store of a site.

use std::sync::Arc;

use lease_core::Locker;
use lease_scheduler::{Job, JobControl, Schedule, Scheduler};
use tokio::sync::Notify;

use crate::site::Site;

/// The job `import` ends after `finish`.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) control: JobControl,
    pub(crate) finish: Arc<Notify>,
}

impl Site {
    /// Starts a scheduler with the jobs `import`, which notes its argument `day`, and `nightly`. It ends with the site.
    pub(crate) fn start_jobs(&self) -> Jobs {
        let finish = Arc::new(Notify::new());
        let of_body = Arc::clone(&finish);
        let import = Job::new("import".parse().unwrap(), move |job| {
            let finish = Arc::clone(&of_body);
            async move {
                let day = job.arguments().get("day").and_then(|day| day.as_text());
                job.note(day.unwrap_or("no day"));
                finish.notified().await;
                Ok(())
            }
        });
        let nightly = Job::new("nightly".parse().unwrap(), |_job| async { Ok(()) });
        let nightly = nightly.on(Schedule::cron("0 3 1 1 *", "UTC").unwrap());
        let store = self.store();
        let table = store.table().unwrap();
        let _context = self.runtime.enter();
        let control = JobControl::new(&Locker::new(store.clone()), Arc::clone(&table));
        let scheduler = Scheduler::builder(Locker::new(store), table);
        let scheduler = scheduler.with_job(import).with_job(nightly).build().unwrap();
        self.runtime.spawn(scheduler.run());
        Jobs { control, finish }
    }
}
