//! The schedulers of the exporter's fleet: threads, or processes, that can be killed.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use lease_examples::{Failure, sentence, show};
use lease_scheduler::ServiceError;
use lease_scheduler::export::{ExportError, Exporter, Worked};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{Arguments, PACE, Tell, exporter};

/// Schedules jobs, and works on them, until told to stop, or until the sink refuses for good.
async fn schedule(exporter: Exporter, stop: CancellationToken, tell: Tell) -> Result<(), Failure> {
    while !stop.is_cancelled() {
        match schedule_once(&exporter).await {
            Ok(Some(error)) if !error.is_retryable() => return Err(error.into()),
            Ok(Some(error)) => tell(format!("tries again: {}", sentence(&error))),
            Ok(None) => (),
            // A server that is away for a moment ends no scheduler.
            Err(error) if error.is_retryable() => {
                tell(format!("tries again: {}", sentence(&error)));
            }
            Err(error) => return Err(error.into()),
        }
        sleep(PACE).await;
    }
    Ok(())
}

/// Answers what the sink said, where it did not take a request.
async fn schedule_once(exporter: &Exporter) -> Result<Option<ServiceError>, ExportError> {
    // That it is held is an answer: somebody exports already.
    drop(exporter.schedule_job().await?);
    match exporter.run_next_job(PACE).await? {
        Worked::Done(_, exported) => Ok(exported.sink_error),
        _ => Ok(None),
    }
}

/// A scheduler that can be killed: a thread, or a process.
pub(crate) struct Scheduler {
    pub(crate) name: String,
    life: Life,
}

enum Life {
    Thread { kill: oneshot::Sender<()>, stop: CancellationToken, ended: oneshot::Receiver<()> },
    Process(Box<Child>),
}

impl Scheduler {
    pub(crate) fn start(
        arguments: &Arguments,
        name: String,
        file: &Path,
        told: &mpsc::UnboundedSender<(String, String)>,
    ) -> Result<Self, Failure> {
        let life = if arguments.store == "memory" {
            Self::thread(arguments, &name, file, told.clone())?
        } else {
            Self::process(arguments, &name, file, told.clone())?
        };
        Ok(Self { name, life })
    }

    /// Nothing that it started outlives its runtime.
    fn thread(
        arguments: &Arguments,
        name: &str,
        file: &Path,
        told: mpsc::UnboundedSender<(String, String)>,
    ) -> Result<Life, Failure> {
        let (kill, killed) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let stop = CancellationToken::new();
        let (who, stopped) = (name.to_owned(), stop.clone());
        let from = name.to_owned();
        let tell: Tell = Arc::new(move |line| drop(told.send((from.clone(), line))));
        let (arguments, file) = (arguments.clone(), file.to_owned());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        drop(spawn_blocking(move || {
            runtime.block_on(async {
                let working = async {
                    let exporter = exporter(&arguments, &who, &file, Arc::clone(&tell)).await?;
                    schedule(exporter, stopped, Arc::clone(&tell)).await
                };
                select! {
                    biased;
                    _ = killed => (),
                    ended = working => if let Err(failure) = ended {
                        tell(format!("ends: {}", sentence(&*failure)));
                    },
                }
            });
            drop(runtime);
            let _ = end.send(());
        }));
        Ok(Life::Thread { kill, stop, ended })
    }

    fn process(
        arguments: &Arguments,
        name: &str,
        file: &Path,
        told: mpsc::UnboundedSender<(String, String)>,
    ) -> Result<Life, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--store", &arguments.store, "--ttl", &arguments.ttl.to_string()]);
        if let Some(sink) = &arguments.sink {
            command.args(["--sink", sink]);
        }
        command.args(["scheduler", name]).arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("a scheduler without output")?;
        let name = name.to_owned();
        drop(tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                drop(told.send((name.clone(), line)));
            }
        }));
        Ok(Life::Process(Box::new(child)))
    }

    /// Ends it with whatever it has in hand.
    pub(crate) async fn kill(self) {
        match self.life {
            Life::Thread { kill, ended, .. } => {
                let _ = kill.send(());
                let _ = ended.await;
            }
            // SIGKILL.
            Life::Process(mut child) => drop(child.kill().await),
        }
    }

    /// Lets it end the job at hand.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        match self.life {
            Life::Thread { stop, ended, .. } => {
                stop.cancel();
                let _ = timeout(PATIENCE, ended).await;
            }
            Life::Process(mut child) => {
                drop(child.stdin.take());
                drop(timeout(PATIENCE, child.wait()).await);
            }
        }
        Ok(())
    }
}

/// The life of a scheduler in a process of its own.
pub(crate) async fn be_scheduler(
    arguments: Arguments,
    name: String,
    file: PathBuf,
) -> Result<ExitCode, Failure> {
    let tell: Tell = Arc::new(show);
    let exporter = exporter(&arguments, &name, &file, Arc::clone(&tell)).await?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    // Ends with the process that started us. On a thread that nobody waits for: a runtime would wait
    // for the read, also where this scheduler has ended by itself.
    drop(thread::spawn(move || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        told.cancel();
    }));
    if let Err(failure) = schedule(exporter, stop, Arc::clone(&tell)).await {
        tell(format!("ends: {}", sentence(&*failure)));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

const PATIENCE: Duration = Duration::from_secs(10);
