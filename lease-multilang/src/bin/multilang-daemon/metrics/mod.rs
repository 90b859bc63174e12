//! Publishes the daemon's metrics. `target` says where: `prometheus` serves them, `emf` prints them. `documents` are the
//! lines that `emf` prints.

mod documents;
mod emf;
mod prometheus;
pub(crate) mod target;

use std::sync::Arc;
use std::time::Duration;

use lease_kinesis::{WorkerBuilder, WorkerMetrics};
use lease_metrics::LeaseMetrics;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::emf::Emf;
use self::target::Target;
use crate::configuration::settings::Settings;
use crate::failure::Failure;

/// Publishes metrics until it is ended.
#[derive(Default)]
pub(crate) struct Publisher {
    worker: Option<Arc<dyn WorkerMetrics>>,
    leases: Option<Arc<LeaseMetrics>>,
    emf: Option<Arc<Emf>>,
    task: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts nothing if `target` is `None`.
    pub(crate) fn start(target: Option<Target>, settings: &Settings) -> Result<Self, Failure> {
        match target {
            None => Ok(Self::default()),
            Some(Target::Prometheus(address)) => {
                let (worker, leases, task) = prometheus::serve(address, &settings.stream)?;
                let (worker, leases) = (Some(worker), Some(leases));
                Ok(Self { worker, leases, emf: None, task: Some(task) })
            }
            Some(Target::Emf) => {
                let emf = Arc::new(Emf::new(&settings.emf, &settings.application));
                let task = tokio::spawn(Arc::clone(&emf).print_at(settings.emf.interval));
                Ok(Self {
                    worker: Some(Arc::clone(&emf) as _),
                    leases: None,
                    emf: Some(emf),
                    task: Some(task),
                })
            }
        }
    }

    pub(crate) fn observe(&self, builder: WorkerBuilder) -> WorkerBuilder {
        let mut builder = builder;
        if let Some(worker) = &self.worker {
            builder = builder.with_metrics(Arc::clone(worker));
        }
        if let Some(leases) = &self.leases {
            builder = builder.with_lease_metrics(Arc::clone(leases) as _);
        }
        builder
    }

    /// Sets the name of the worker, which is known after the worker is built.
    pub(crate) fn name(&self, worker: &str) {
        if let Some(emf) = &self.emf {
            emf.name(worker);
        }
    }

    /// Prints the last values, unless no one reads stdout.
    pub(crate) async fn end(self) {
        if let Some(task) = self.task {
            task.abort();
        }
        if let Some(emf) = self.emf {
            drop(timeout(LAST_PRINT, emf.print()).await);
        }
    }
}

const LAST_PRINT: Duration = Duration::from_secs(1);
