//! Starts probe processes, and reads their events.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use lease_test_servers::sync::lock;

use crate::failure::Failure;
use crate::judge::observations::{Observations, ProbeLog};

/// A drop kills the process.
#[derive(Debug)]
pub(crate) struct Probe {
    process: Child,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Steady,
    Newcomer,
    /// This many tasks contend for one key.
    Contention(usize),
}

impl Probe {
    pub(crate) fn start(
        address: &str,
        name: &str,
        shards: &[Vec<String>],
        purpose: Purpose,
        seen: &Arc<Mutex<Observations>>,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["probe", "--store", address, "--name", name]);
        for keys in shards {
            command.args(["--shard", &keys.join(",")]);
        }
        if let Purpose::Contention(contenders) = purpose {
            command.args(["--contenders", &contenders.to_string()]);
        }
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("a probe without output")?;
        let observations = Arc::clone(seen);
        let number = {
            let mut seen = lock(&observations);
            let is_newcomer = purpose == Purpose::Newcomer;
            let contends = matches!(purpose, Purpose::Contention(_));
            seen.probes.push(ProbeLog { is_newcomer, contends, ..ProbeLog::default() });
            seen.probes.len() - 1
        };
        let reader = std::thread::spawn(move || {
            // The last line of a killed process may be cut off.
            let events = BufReader::new(output).lines().map_while(Result::ok);
            for event in events.filter_map(|line| line.parse().ok()) {
                let mut seen = lock(&observations);
                if let Some(log) = seen.probes.get_mut(number) {
                    log.push(event);
                }
            }
        });
        Ok(Self { process, reader: Some(reader) })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}
