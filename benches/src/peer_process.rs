//! A contestant in a separate program, since its library is in another language.
//!
//! The program's only argument is the URL of a Redis server. When the program is ready, it prints a
//! line with the name and version of its library. Then it reads lines `TASKS CYCLES`, until its input
//! ends. Each line starts a round. It runs cycles in the way of `cycles_by_tasks` in `scenarios/cycles.rs`.
//! The program answers with a line of three numbers: the median and the 99th percentile of the time
//! until a grant, in milliseconds, and the cycles per second. If a call fails or a line is malformed,
//! the program prints the reason to standard error and exits with status 1.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::CALL_TIMEOUT;

/// A program that runs for all rounds, so that connections stay open and compiled code stays compiled.
pub(crate) struct PeerProcess {
    name: String,
    running: Mutex<Running>,
}

/// Ends the program when it is dropped.
struct Running {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl PeerProcess {
    /// Starts the program, which inherits the cores of this process, and waits until it is ready.
    pub(crate) async fn start(mut program: Command, url: &str) -> Result<Self, String> {
        program.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = program.spawn();
        let tool = program.get_program().display();
        let mut child = child.map_err(|error| format!("running {tool}: {error}"))?;
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = unbounded_channel();
        // A round has a time limit, and a read has none. So a separate thread reads until the program ends.
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut running = Running { child, lines };
        match timeout(START_TIMEOUT, running.lines.recv()).await {
            Ok(Some(name)) => Ok(Self { name, running: Mutex::new(running) }),
            Ok(None) => Err("the program ended".to_owned()),
            Err(_) => Err(format!("the program was not ready in {START_TIMEOUT:?}")),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the three values of a round, or `None` if this round or an earlier round did not finish.
    pub(crate) async fn round(&self, tasks: usize, cycles: usize) -> Option<[f64; 3]> {
        let mut running = self.running.lock().await;
        let values = running.round(tasks, cycles).await;
        if values.is_none() {
            // Ends the program. Otherwise, a late answer would become the answer of the next round.
            running.end();
        }
        values
    }
}

impl Running {
    async fn round(&mut self, tasks: usize, cycles: usize) -> Option<[f64; 3]> {
        writeln!(self.child.stdin.as_mut()?, "{tasks} {cycles}").ok()?;
        let line = timeout(CALL_TIMEOUT, self.lines.recv()).await.ok()??;
        let values: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        values.ok()?.try_into().ok()
    }

    fn end(&mut self) {
        // An error means that the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The time limit of a start, in which a program may warm up.
const START_TIMEOUT: Duration = Duration::from_mins(2);
