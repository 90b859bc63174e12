//! A running daemon.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::sleep;

use crate::place::{BETWEEN_LOOKS, LOOKS};

pub(crate) struct Daemon {
    process: Child,
    log: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Daemon {
    pub(crate) fn start(
        program: impl AsRef<Path>,
        arguments: &[String],
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        let mut process = Command::new(program.as_ref())
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines() {
                let Ok(line) = line else { return };
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { process, log, reader }
    }

    pub(crate) fn id(&self) -> i32 {
        self.process.id().cast_signed()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.id()).unwrap(), signal).unwrap();
    }

    pub(crate) async fn until_logged(&self, text: &str) {
        self.until(text, || self.log().contains(text)).await;
    }

    pub(crate) async fn until(&self, what: &str, so: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if so() {
                return;
            }
            sleep(BETWEEN_LOOKS).await;
        }
        panic!("timed out: {what}\n{}", self.log());
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        for _ in 0..LOOKS {
            match self.process.try_wait().unwrap() {
                Some(status) if self.reader.is_finished() => return status,
                _ => sleep(BETWEEN_LOOKS).await,
            }
        }
        panic!("the daemon did not exit, or a child still has its stderr open\n{}", self.log());
    }

    /// Returns the status if the daemon exits within a short time.
    pub(crate) async fn ended_soon(&mut self) -> Option<ExitStatus> {
        sleep(10 * BETWEEN_LOOKS).await;
        match self.process.try_wait().unwrap() {
            Some(_) => Some(self.ended().await),
            None => None,
        }
    }

    pub(crate) async fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}\n{}", self.log());
        self.log()
    }

    /// The peak resident set size in kilobytes.
    pub(crate) fn most_memory(&self) -> u64 {
        memory(self.id(), "VmHWM:")
    }

    pub(crate) fn memory(&self) -> u64 {
        memory(self.id(), "VmRSS:")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn memory(process: i32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn kill(process: i32) {
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
}

pub(crate) fn is_there(process: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let is_zombie = state.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z'));
    test_kill_process(Pid::from_raw(process).unwrap()).is_ok() && !is_zombie
}
