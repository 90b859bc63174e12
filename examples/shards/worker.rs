//! One worker of the fleet, on its own thread and runtime, as if in its own process.
//!
//! A kill drops the worker's runtime. The worker hands over no shard, and its leases expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lease_core::LeaseOptions;
use lease_examples::deliveries::Deliveries;
use lease_examples::{Failure, stores::open_table};
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream,
    Worker, WorkerBuilder, WorkerHandle,
};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, oneshot};

pub(crate) struct FleetSettings {
    pub(crate) application: String,
    pub(crate) store: String,
    pub(crate) options: LeaseOptions,
    pub(crate) stream: Stream,
}

pub(crate) enum Stream {
    Simulated(SimStream),
    #[cfg(feature = "aws")]
    InAws(String),
}

pub(crate) enum Ended {
    Stopped,
    Killed { unsaved: usize },
}

pub(crate) struct EndSignals {
    /// The value is the number of records without a checkpoint.
    pub(crate) killed: mpsc::Receiver<usize>,
    /// Completes when the fleet is dropped, after a failure.
    pub(crate) fleet_dropped: oneshot::Receiver<()>,
}

/// A drop of the runtime ends every task of the worker.
pub(crate) fn process(
    settings: &FleetSettings,
    name: &str,
    processor: Processor,
    started: oneshot::Sender<WorkerHandle>,
    mut signals: EndSignals,
) -> Result<Ended, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let worker = settings.worker(name, processor).await?;
        drop(started.send(worker.handle()));
        let run = tokio::spawn(worker.run());
        select! {
            biased;
            // The return drops the runtime, so the worker cannot hand over its shards.
            Some(unsaved) = signals.killed.recv() => Ok(Ended::Killed { unsaved }),
            _ = signals.fleet_dropped => Err("the fleet has failed".into()),
            ended = run => Ok(ended?.map(|()| Ended::Stopped)?),
        }
    })
}

impl FleetSettings {
    async fn worker(&self, name: &str, processor: Processor) -> Result<Worker, Failure> {
        let table = open_table(&self.store).await?;
        let factory = move |_: &ShardContext| processor.clone();
        let application = &*self.application;
        let builder = match &self.stream {
            Stream::Simulated(stream) => {
                let builder = Worker::builder(application, table, stream.clone(), factory);
                builder.with_name(name.parse()?)
            }
            #[cfg(feature = "aws")]
            // Another process may also have a `worker-1`. So workers of a stream in AWS keep their
            // default names.
            Stream::InAws(stream) => {
                let stream = lease_examples::kinesis::open(stream)?;
                Worker::builder(application, table, stream, factory)
            }
        };
        Ok(self.set_up(builder).build()?)
    }

    fn set_up(&self, builder: WorkerBuilder) -> WorkerBuilder {
        builder
            .with_options(self.options.clone())
            .with_initial_position(InitialPosition::TrimHorizon)
            // The numbers on the terminal change often with a short pause.
            .with_idle_pause(Duration::from_millis(200))
    }
}

impl Stream {
    #[cfg(feature = "aws")]
    pub(crate) fn in_aws(stream: &str) -> Result<Self, Failure> {
        // A missing variable fails here, before any worker starts.
        lease_examples::kinesis::open(stream)?;
        Ok(Self::InAws(stream.to_owned()))
    }

    #[cfg(not(feature = "aws"))]
    pub(crate) fn in_aws(stream: &str) -> Result<Self, Failure> {
        Err(format!("stream {stream} is in AWS: build with `--features aws`").into())
    }

    /// Workers with the same name share the stream.
    pub(crate) fn application(&self) -> String {
        match self {
            // Each run has a new simulated stream, so each run needs new rows.
            Self::Simulated(_) => {
                format!("simulated-{}-{}", std::process::id(), millis_since_1970())
            }
            // The name is at the end of an ARN.
            #[cfg(feature = "aws")]
            Self::InAws(stream) => {
                format!("shards-{}", stream.rsplit('/').next().unwrap_or_default())
            }
        }
    }
}

/// Notes the records of each batch as delivered, then checkpoints.
#[derive(Clone)]
pub(crate) struct Processor {
    /// `None` for a stream in AWS, which has no end, but memory is limited.
    pub(crate) deliveries: Option<Deliveries>,
    /// If true, the worker must be killed before its next checkpoint.
    pub(crate) is_doomed: Arc<AtomicBool>,
    pub(crate) kill: mpsc::Sender<usize>,
}

#[async_trait]
impl RecordProcessor for Processor {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if let Some(deliveries) = &self.deliveries {
            batch.records.iter().for_each(|record| deliveries.add(record));
        }
        if self.is_doomed.load(Ordering::SeqCst) {
            let _ = self.kill.send(batch.records.len()).await;
            std::future::pending::<()>().await;
        }
        checkpointer.checkpoint().await.into()
    }
}

#[expect(clippy::disallowed_methods, reason = "names a run, no lease depends on it")]
fn millis_since_1970() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}
