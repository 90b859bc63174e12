//! The jobs of a scheduler, to which jobs are added at any time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::LeaseTable;
use lease_core::{InvalidInput, LeaseKey, Locker};
use parking_lot::RwLock;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::WallClock;
use crate::control::{JobControl, control_key, job_of};
use crate::job::Job;
use crate::outcome::JobMetrics;
use crate::run::Runner;

/// What all jobs of a scheduler share.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) locker: Locker,
    pub(crate) table: Arc<dyn LeaseTable>,
    pub(crate) grace: Duration,
    pub(crate) command_poll: Duration,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) metrics: Arc<dyn JobMetrics>,
}

/// The jobs of a scheduler that is built, and what runs and stops them.
#[derive(Debug)]
pub(crate) struct JobSet {
    pub(crate) settings: Settings,
    pub(crate) control: JobControl,
    pub(crate) runners: RwLock<BTreeMap<LeaseKey, Arc<Runner>>>,
    pub(crate) add: UnboundedSender<Arc<Runner>>,
    pub(crate) stopping: CancellationToken,
    /// The runs on demand, which execute in the tasks of their callers.
    pub(crate) on_demand: TaskTracker,
}

impl JobSet {
    pub(crate) fn add_job(&self, mut job: Job) -> Result<(), InvalidInput> {
        let Settings { locker, table, grace, command_poll, wall, metrics } = &self.settings;
        let name = job.name.clone();
        let _key = control_key(&name)?;
        if job_of(&name).is_some() {
            return Err(InvalidInput::new(format!(
                "the name {name} ends like the key of a control record: choose another name"
            )));
        }
        let locker = match job.lease_ttl.take() {
            Some(ttl) => {
                let options = locker.options().clone().with_ttl(ttl)?;
                locker.clone().with_options(options)
            }
            None => locker.clone(),
        };
        let runner = Arc::new(Runner {
            job,
            locker,
            table: Arc::clone(table),
            control: self.control.clone(),
            command_poll: *command_poll,
            wall: Arc::clone(wall),
            metrics: Arc::clone(metrics),
            stopping: self.stopping.child_token(),
            grace: *grace,
            tasks: TaskTracker::new(),
        });
        let mut runners = self.runners.write();
        if runners.contains_key(&name) {
            return Err(InvalidInput::new(format!("two jobs have the name {name}")));
        }
        // An error means that the scheduler was dropped. Then the job runs only on demand.
        drop(self.add.send(Arc::clone(&runner)));
        runners.insert(name, runner);
        Ok(())
    }

    pub(crate) fn runner(&self, name: &str) -> Result<Arc<Runner>, InvalidInput> {
        let runner = self.runners.read().get(name).cloned();
        runner.ok_or_else(|| InvalidInput::new(format!("no job has the name {name:?}")))
    }
}
