//! Publishes the daemon's metrics. `target` says where: `prometheus` serves them, `emf` prints them. `documents` are the
//! lines that `emf` prints.

mod documents;
mod emf;
mod prometheus;
pub(crate) mod target;

use std::sync::Arc;
use std::time::Duration;

use lease_kinesis::{Worker, WorkerBuilder, WorkerMetrics};
use lease_metrics::LeaseMetrics;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::emf::{Emf, PrintedWorker};
use self::target::Target;
use crate::configuration::settings::Settings;
use crate::failure::Failure;

/// Publishes metrics until it is ended.
#[derive(Default)]
pub(crate) struct Publisher {
    worker: Option<Arc<dyn WorkerMetrics>>,
    leases: Option<Arc<LeaseMetrics>>,
    emf: Option<Arc<Emf>>,
    /// `None` until the worker is built. Nothing is printed before.
    printed: Option<PrintedWorker>,
    task: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts nothing if `target` is `None`.
    pub(crate) fn start(target: Option<Target>, settings: &Settings) -> Result<Self, Failure> {
        match target {
            None => Ok(Self::default()),
            Some(Target::Prometheus(address)) => {
                let (worker, leases, task) = prometheus::serve(address, settings)?;
                let (worker, leases, task) = (Some(worker), Some(leases), Some(task));
                Ok(Self { worker, leases, task, ..Self::default() })
            }
            Some(Target::Emf) => {
                let emf = Arc::new(Emf::new(&settings.emf, &settings.application));
                let worker = Some(Arc::clone(&emf) as _);
                Ok(Self { worker, emf: Some(emf), ..Self::default() })
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

    /// Starts to print. CloudWatch refuses a metric without the worker's name, which is known after the worker is built.
    pub(crate) fn name(&mut self, worker: &Worker) {
        if let Some(emf) = &self.emf {
            let name = worker.name().as_str().to_owned();
            let printed = PrintedWorker { name, handle: worker.handle() };
            self.task = Some(tokio::spawn(Arc::clone(emf).print_for(printed.clone())));
            self.printed = Some(printed);
        }
    }

    /// Prints the last values, unless no one reads stdout.
    pub(crate) async fn end(self) {
        if let Some(task) = self.task {
            task.abort();
        }
        if let (Some(emf), Some(worker)) = (self.emf, self.printed) {
            drop(timeout(LAST_PRINT, emf.print(&worker)).await);
        }
    }
}

const LAST_PRINT: Duration = Duration::from_secs(1);
