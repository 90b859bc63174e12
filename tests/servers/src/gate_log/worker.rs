//! A process that writes to the log while it holds a lease.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lease_core::{LeaseKey, Locker};
use tokio::time::sleep;

use crate::gate_log::GateLog;

/// A worker process. A drop kills the process with SIGKILL.
#[derive(Debug)]
pub struct Worker(Child);

impl Worker {
    /// The command of a worker process that logs in `folder`: this test program with the ignored
    /// `test` selected.
    ///
    /// # Panics
    ///
    /// Panics if this program has no path.
    pub fn command(test: &str, folder: &Path) -> Command {
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command.args([test, "--exact", "--ignored", "--nocapture"]).env(FOLDER, folder);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts a worker process.
    ///
    /// # Panics
    ///
    /// Panics if the process cannot be started.
    pub fn start(mut command: Command) -> Self {
        Self(command.spawn().expect("a worker process"))
    }

    /// Whether this process wrote the last line of `log`.
    pub fn wrote_last(&self, log: &GateLog) -> bool {
        log.last_writer() == Some(self.0.id())
    }

    /// Returns the folder of a worker process. `None` in any other process.
    pub fn folder() -> Option<PathBuf> {
        env::var_os(FOLDER).map(PathBuf::from)
    }

    /// Obtains the key, writes a few lines under its token, releases the key, and repeats.
    ///
    /// # Panics
    ///
    /// Panics if the store fails, or the log cannot be written.
    pub async fn write_under_leases(locker: Locker, key: LeaseKey, log: GateLog) {
        loop {
            let lease = locker.wait_until_obtained(&key).await.expect("a lease");
            for _line in 0..5 {
                log.write(lease.token(), || lease.is_held());
                sleep(Duration::from_millis(4)).await;
            }
            drop(lease.release().await);
            // A store without a queue would mostly grant the key to the same process again.
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Gives a worker's command a wall clock with the offset `clock`, such as `"+1h"`. Other clocks
/// stay correct.
pub fn set_wall_clock(command: &mut Command, libfaketime: &Path, clock: &str) {
    command.env("LD_PRELOAD", libfaketime).env("FAKETIME", clock).env("DONT_FAKE_MONOTONIC", "1");
}

const FOLDER: &str = "LEASE_TEST_WORKER_FOLDER";
