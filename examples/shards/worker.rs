//! One worker of the fleet. Each lives on a thread and a runtime of its own, as it would in a process
//! of its own. Killing one drops its runtime: nothing is handed over, and its leases run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lease_core::LeaseOptions;
use lease_examples::deliveries::Deliveries;
use lease_examples::{Failure, open_table};
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream,
    Worker, WorkerBuilder, WorkerHandle,
};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, oneshot};

/// What each worker is made of.
pub(crate) struct Plan {
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

/// How a worker ended.
pub(crate) enum Ended {
    Stopped,
    Killed { in_hand: usize },
}

/// What ends a process whatever its worker does.
pub(crate) struct Ends {
    /// With so many records in hand.
    pub(crate) killed: mpsc::Receiver<usize>,
    /// Whoever started it has failed.
    pub(crate) unwanted: oneshot::Receiver<()>,
}

/// Runs a worker as a process of its own: nothing that it started outlives this.
pub(crate) fn process(
    plan: &Plan,
    name: &str,
    clerk: Clerk,
    told: oneshot::Sender<WorkerHandle>,
    mut ends: Ends,
) -> Result<Ended, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let worker = plan.worker(name, clerk).await?;
        drop(told.send(worker.handle()));
        let run = tokio::spawn(worker.run());
        select! {
            biased;
            // The runtime is dropped with everything on it: there is no time to hand over.
            Some(in_hand) = ends.killed.recv() => Ok(Ended::Killed { in_hand }),
            _ = ends.unwanted => Err("the fleet is no more".into()),
            ended = run => Ok(ended?.map(|()| Ended::Stopped)?),
        }
    })
}

impl Plan {
    async fn worker(&self, name: &str, clerk: Clerk) -> Result<Worker, Failure> {
        let table = open_table(&self.store).await?;
        let factory = move |_: &ShardContext| clerk.clone();
        let application = &*self.application;
        let builder = match &self.stream {
            Stream::Simulated(stream) => {
                let builder = Worker::builder(application, table, stream.clone(), factory);
                builder.with_name(name.parse()?)
            }
            #[cfg(feature = "aws")]
            // Other processes may have workers of the same number: each has a name by itself.
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
            // So that the table lives.
            .with_idle_pause(Duration::from_millis(200))
    }
}

impl Stream {
    #[cfg(feature = "aws")]
    pub(crate) fn in_aws(stream: &str) -> Result<Self, Failure> {
        // Opened once here, so that what is missing is told before anything starts.
        lease_examples::kinesis::open(stream)?;
        Ok(Self::InAws(stream.to_owned()))
    }

    #[cfg(not(feature = "aws"))]
    pub(crate) fn in_aws(stream: &str) -> Result<Self, Failure> {
        Err(format!("stream {stream} is in AWS: run with `--features aws`").into())
    }

    /// Under which name the workers are together.
    pub(crate) fn application(&self) -> String {
        match self {
            // A simulated stream begins anew in each run, and so does what reads it.
            Self::Simulated(_) => {
                format!("simulated-{}-{}", std::process::id(), millis_since_1970())
            }
            // Of an ARN, the name.
            #[cfg(feature = "aws")]
            Self::InAws(stream) => {
                format!("shards-{}", stream.rsplit('/').next().unwrap_or_default())
            }
        }
    }
}

/// Works on records.
#[derive(Clone)]
pub(crate) struct Clerk {
    /// None of a stream that does not end: there is not memory enough.
    pub(crate) deliveries: Option<Deliveries>,
    pub(crate) doomed: Arc<AtomicBool>,
    pub(crate) kill: mpsc::Sender<usize>,
}

#[async_trait]
impl RecordProcessor for Clerk {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if let Some(deliveries) = &self.deliveries {
            batch.records.iter().for_each(|record| deliveries.note(record));
        }
        if self.doomed.load(Ordering::SeqCst) {
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
