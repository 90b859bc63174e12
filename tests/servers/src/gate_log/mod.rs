//! A log that processes share. Like a gate, it accepts a line only under the largest token so far.
//!
//! [`worker`] is a process that writes to the log.

pub mod worker;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease_core::FencingToken;
use tokio::time::{sleep, timeout};

use crate::gate_log::worker::Worker;

/// A file to which processes append lines under their tokens.
#[derive(Debug)]
pub struct GateLog {
    path: PathBuf,
}

/// Whether processes held a lease at the same time.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a test treats each verdict")]
pub enum Verdict {
    /// No two leases were held at the same time.
    Exclusive {
        /// The number of leases under which a process has written.
        tenures: usize,
    },
    /// Two leases were held at the same time. The text is the line that shows the overlap.
    Overlap(String),
    /// After this many kills, no process obtained the key.
    Stopped(usize),
}

impl GateLog {
    /// The log in `folder`.
    pub fn at(folder: &Path) -> Self {
        Self { path: folder.join("log") }
    }

    /// Appends a line under `token`, unless a larger token is in the log. If the lease `is_held`
    /// despite a larger token, two leases are held at the same time, and a line reports the
    /// overlap.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be read or written.
    pub fn write(&self, token: FencingToken, is_held: impl FnOnce() -> bool) {
        let mut file = self.open();
        file.lock().expect("the log");
        let line = if largest_in(&mut file) <= Some(token) {
            format!("{token} {} wrote\n", std::process::id())
        } else if is_held() {
            format!("{token} {} OVERLAP\n", std::process::id())
        } else {
            return;
        };
        // One write, so that a killed process leaves a whole line or no line.
        file.write_all(line.as_bytes()).expect("the log");
    }

    /// The largest token under which a process has written.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be read or written.
    pub fn largest(&self) -> Option<FencingToken> {
        largest_in(&mut self.open())
    }

    /// The process that wrote the last line.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be read or written.
    pub fn last_writer(&self) -> Option<u32> {
        let text = text_in(&mut self.open());
        text.lines().last()?.split(' ').nth(1)?.parse().ok()
    }

    /// Returns the largest token, once `is_fit` accepts it.
    ///
    /// # Panics
    ///
    /// Panics if the wait exceeds `limit`.
    pub async fn waits_for(
        &self,
        is_fit: impl Fn(FencingToken) -> bool + Send + Sync,
        limit: Duration,
    ) -> FencingToken {
        self.waits_until(|log| log.largest().is_some_and(&is_fit), limit).await;
        self.largest().expect("a line")
    }

    /// Waits until `is_so` returns true for the log.
    ///
    /// # Panics
    ///
    /// Panics if the wait exceeds `limit`.
    pub async fn waits_until(&self, is_so: impl Fn(&Self) -> bool + Send + Sync, limit: Duration) {
        let wait = async {
            while !is_so(self) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit, wait).await.expect("the lines within the limit");
    }

    /// Waits until two workers have written in turn, five times each.
    ///
    /// # Panics
    ///
    /// Panics if a turn takes longer than `limit`.
    pub async fn waits_for_turns(&self, one: &Worker, other: &Worker, limit: Duration) {
        for _turn in 0..5 {
            self.waits_until(|log| one.wrote_last(log), limit).await;
            self.waits_until(|log| other.wrote_last(log), limit).await;
        }
    }

    /// Waits until two leases were held at the same time.
    ///
    /// # Panics
    ///
    /// Panics if the wait exceeds `limit`.
    pub async fn waits_for_overlap(&self, limit: Duration) {
        self.waits_until(|log| matches!(log.verdict(), Verdict::Overlap(_)), limit).await;
    }

    /// Judges all lines.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be read or written.
    pub fn verdict(&self) -> Verdict {
        let text = text_in(&mut self.open());
        if let Some(line) = text.lines().find(|line| line.ends_with("OVERLAP")) {
            return Verdict::Overlap(line.to_owned());
        }
        // Two processes with the same token are also two holders.
        let mut writers: Vec<_> =
            text.lines().filter_map(|line| line.strip_suffix(" wrote")).collect();
        writers.dedup();
        let tenures = writers.len();
        writers.sort_unstable();
        writers.dedup_by_key(|writer| writer.split(' ').next().map(str::to_owned));
        if writers.len() < tenures {
            return Verdict::Overlap("two processes have one token".to_owned());
        }
        Verdict::Exclusive { tenures }
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).append(true).create(true).open(&self.path).expect("the log")
    }
}

fn text_in(file: &mut File) -> String {
    let mut text = String::new();
    file.rewind().expect("the log");
    file.read_to_string(&mut text).expect("the log");
    text
}

fn largest_in(file: &mut File) -> Option<FencingToken> {
    let text = text_in(file);
    let token = |line: &str| FencingToken::new(line.split(' ').next()?.parse().ok()?).ok();
    text.lines().filter_map(token).max()
}
