//! A contestant in another language, as a separate program.
//!
//! The program's only argument is the URL of a Redis server. The program first prints a line with
//! the name and version of its library. Each input line `TASKS CYCLES` starts a round of cycles, as
//! in `cycles_by_tasks` in `scenarios/cycles.rs`. The answer is a line of three numbers: the median
//! and the 99th percentile of the time until a grant, in milliseconds, and the cycles per second.
//! After an error, the program prints the reason to standard error and exits with status 1.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::CALL_TIMEOUT;

/// Runs for all rounds, so that connections stay open and compiled code stays compiled.
pub(crate) struct PeerProcess {
    name: String,
    running: Mutex<Running>,
}

struct Running {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl PeerProcess {
    /// The program inherits the cores of this process.
    pub(crate) async fn start(mut program: Command, url: &str) -> Result<Self, String> {
        program.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = program.spawn();
        let tool = program.get_program().display();
        let mut child = child.map_err(|error| format!("running {tool}: {error}"))?;
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = unbounded_channel();
        // A round has a time limit, and a read has none. So a separate thread reads until the
        // program ends.
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

    pub(crate) async fn round(&self, tasks: usize, cycles: usize) -> Option<[f64; 3]> {
        let mut running = self.running.lock().await;
        let values = running.round(tasks, cycles).await;
        if values.is_none() {
            // A late answer would become the answer of the next round.
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
        // The program may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program may warm up at its start.
const START_TIMEOUT: Duration = Duration::from_mins(2);
