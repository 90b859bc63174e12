//! Schedulers that can be killed: threads with the store in memory, processes with Redis.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use lease_examples::{Failure, print_line, sentence};
use lease_export::{ExportError, Exporter, ServiceError, Worked};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{Arguments, PACE, Print, exporter};

/// Schedules and runs jobs until `stop` is cancelled, or until an error that cannot be retried.
async fn schedule(
    exporter: Exporter,
    stop: CancellationToken,
    print: Print,
) -> Result<(), Failure> {
    while !stop.is_cancelled() {
        match schedule_once(&exporter).await {
            Ok(Some(error)) if !error.is_retryable() => return Err(error.into()),
            Ok(Some(error)) => print(format!("retries: {}", sentence(&error))),
            Ok(None) => (),
            // A short outage of the server does not end the scheduler.
            Err(error) if error.is_retryable() => print(format!("retries: {}", sentence(&error))),
            Err(error) => return Err(error.into()),
        }
        sleep(PACE).await;
    }
    Ok(())
}

/// Returns the sink's error, if the sink refused a request.
async fn schedule_once(exporter: &Exporter) -> Result<Option<ServiceError>, ExportError> {
    // If another process holds the lease, that process exports, and the call returns `Ok`.
    drop(exporter.schedule_job().await?);
    match exporter.run_next_job(PACE).await? {
        Worked::Done(_, exported) => Ok(exported.sink_error),
        _ => Ok(None),
    }
}

pub(crate) struct Scheduler {
    pub(crate) name: String,
    process: Process,
}

enum Process {
    Thread { kill: oneshot::Sender<()>, stop: CancellationToken, ended: oneshot::Receiver<()> },
    Child(Box<Child>),
}

impl Scheduler {
    /// The scheduler sends its output, with its name, to `output`.
    pub(crate) fn start(
        arguments: &Arguments,
        name: String,
        file: &Path,
        output: &mpsc::UnboundedSender<(String, String)>,
    ) -> Result<Self, Failure> {
        let process = if arguments.store == "memory" {
            Self::thread(arguments, &name, file, output.clone())?
        } else {
            Self::child(arguments, &name, file, output.clone())?
        };
        Ok(Self { name, process })
    }

    /// A drop of the runtime ends all of its tasks.
    fn thread(
        arguments: &Arguments,
        name: &str,
        file: &Path,
        output: mpsc::UnboundedSender<(String, String)>,
    ) -> Result<Process, Failure> {
        let (kill, killed) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let stop = CancellationToken::new();
        let (name, stopped) = (name.to_owned(), stop.clone());
        let source = name.clone();
        let print: Print = Arc::new(move |line| drop(output.send((source.clone(), line))));
        let (arguments, file) = (arguments.clone(), file.to_owned());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        drop(spawn_blocking(move || {
            runtime.block_on(async {
                let working = async {
                    let exporter = exporter(&arguments, &name, &file, Arc::clone(&print)).await?;
                    schedule(exporter, stopped, Arc::clone(&print)).await
                };
                select! {
                    biased;
                    _ = killed => (),
                    ended = working => if let Err(failure) = ended {
                        print(format!("ends: {}", sentence(&*failure)));
                    },
                }
            });
            drop(runtime);
            let _ = end.send(());
        }));
        Ok(Process::Thread { kill, stop, ended })
    }

    fn child(
        arguments: &Arguments,
        name: &str,
        file: &Path,
        output: mpsc::UnboundedSender<(String, String)>,
    ) -> Result<Process, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--store", &arguments.store, "--ttl", &arguments.ttl.to_string()]);
        if let Some(sink) = &arguments.sink {
            command.args(["--sink", sink]);
        }
        command.args(["scheduler", name]).arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("the child has no stdout")?;
        let name = name.to_owned();
        drop(tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                drop(output.send((name.clone(), line)));
            }
        }));
        Ok(Process::Child(Box::new(child)))
    }

    pub(crate) async fn kill(self) {
        match self.process {
            Process::Thread { kill, ended, .. } => {
                let _ = kill.send(());
                let _ = ended.await;
            }
            Process::Child(mut child) => drop(child.kill().await),
        }
    }

    /// Lets the scheduler finish its job, then ends the scheduler.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        match self.process {
            Process::Thread { stop, ended, .. } => {
                stop.cancel();
                let _ = timeout(STOP_TIMEOUT, ended).await;
            }
            Process::Child(mut child) => {
                drop(child.stdin.take());
                drop(timeout(STOP_TIMEOUT, child.wait()).await);
            }
        }
        Ok(())
    }
}

pub(crate) async fn run_scheduler(
    arguments: Arguments,
    name: String,
    file: PathBuf,
) -> Result<ExitCode, Failure> {
    let print: Print = Arc::new(print_line);
    let exporter = exporter(&arguments, &name, &file, Arc::clone(&print)).await?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    // Stdin ends with the parent process. A plain thread reads stdin, since tokio's runtime would
    // wait for the read after the scheduler has ended.
    drop(thread::spawn(move || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        stopped.cancel();
    }));
    if let Err(failure) = schedule(exporter, stop, Arc::clone(&print)).await {
        print(format!("ends: {}", sentence(&*failure)));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
