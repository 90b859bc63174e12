//! Processes that obtain the key again and again, and their reports.

use std::collections::{BTreeMap, HashSet};
use std::process::Stdio;
use std::sync::Arc;

use lease_core::store::micros_since_1970;
use lease_test_servers::claims::soon;
use lease_test_servers::redis::RedisServer;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

pub(super) struct Fleet {
    url: String,
    processes: Vec<Child>,
    reports: Arc<Mutex<Vec<Report>>>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Report {
    /// The time is in microseconds since 1970.
    pub(super) read: u64,
    pub(super) process: u32,
    pub(super) line: String,
}

/// Times are in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) obtained: u64,
    /// The time at which the release was sent. `None` if the process was killed before.
    pub(super) released: Option<u64>,
}

impl Fleet {
    pub(super) fn start(server: &RedisServer, count: usize) -> Self {
        let (processes, readers) = (Vec::new(), Vec::new());
        let mut fleet = Self { url: server.url(), processes, reports: Arc::default(), readers };
        for _ in 0..count {
            let process = fleet.spawn();
            fleet.processes.push(process);
        }
        fleet
    }

    fn spawn(&mut self) -> Child {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "in_turn_kills::obtains_the_key_again_and_again", "--ignored"])
            .arg("--nocapture")
            .env(URL, &self.url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (id, mut lines) =
            (process.id().unwrap(), BufReader::new(process.stdout.take().unwrap()).lines());
        let reports = Arc::clone(&self.reports);
        self.readers.push(tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                reports.lock().push(Report { read: micros_since_1970(), process: id, line });
            }
        }));
        process
    }

    pub(super) async fn replace(&mut self, place: usize) {
        let new = self.spawn();
        let mut old = std::mem::replace(&mut self.processes[place], new);
        let (process, line) = (old.id().unwrap(), "killed".to_owned());
        self.reports.lock().push(Report { read: micros_since_1970(), process, line });
        old.kill().await.unwrap();
    }

    pub(super) async fn stop(&mut self) {
        for process in &mut self.processes {
            process.kill().await.unwrap();
        }
        for reader in self.readers.drain(..) {
            soon(reader).await.unwrap();
        }
    }

    pub(super) fn count(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        self.reports.lock().iter().filter(|report| is_meant(&report.line)).count()
    }

    pub(super) fn holders(&self) -> usize {
        let reports = self.reports.lock();
        let holders = reports.iter().filter(|report| report.line.starts_with("obtained"));
        holders.map(|report| report.process).collect::<HashSet<_>>().len()
    }

    pub(super) fn holds(&self) -> BTreeMap<u64, Hold> {
        let mut holds = BTreeMap::<u64, Hold>::new();
        for Report { line, .. } in self.reports.lock().iter() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |place: usize| words[place].parse::<u64>().unwrap();
            match words[..] {
                ["obtained", ..] => {
                    holds.insert(number(1), Hold { obtained: number(2), released: None });
                }
                ["released", ..] => {
                    holds.get_mut(&number(1)).unwrap().released = Some(number(2));
                }
                _ => (),
            }
        }
        holds
    }

    pub(super) fn reports(&self, from: u64, until: u64) -> Vec<(u64, String)> {
        let reports = self.reports.lock();
        let reports = reports.iter().filter(|report| (from..until).contains(&report.read));
        reports.map(|it| (it.read, format!("process {} {}", it.process, it.line))).collect()
    }
}

pub(super) fn is_cancelled(line: &str) -> bool {
    line == "cancelled"
}

pub(super) fn is_obtained(line: &str) -> bool {
    line.starts_with("obtained")
}

pub(super) const URL: &str = "LEASE_TEST_KILLED_WAITER_ON";
