//! Keeps cores awake, and assigns servers and clients to cores.
//!
//! The kernel or the hypervisor puts an idle core to sleep. Waking this core then takes longer than a whole
//! request on loopback, and the delay depends on the length of the last wait. So each core runs a loop at
//! idle priority, which keeps the core awake.

use std::num::NonZero;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::{io, thread};

/// Keeps all cores awake until this value is dropped.
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    /// Starts the loops with `chrt` of util-linux, which Debian has.
    pub(crate) fn all_cores() -> io::Result<Self> {
        // The loop ends by itself if this process is killed.
        let spin =
            "while [ -d /proc/$PPID ]; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done";
        let mut awake = Self(Vec::new());
        for _ in 0..*CORES {
            let spinning = Command::new("chrt").args(["--idle", "0", "sh", "-c", spin]).spawn();
            awake.0.push(spinning?);
        }
        Ok(awake)
    }
}

/// Runs servers on the last core, and this process on the other cores, until this value is dropped.
///
/// A woken task runs at once if its waker runs on the same core. On another core, the wake-up takes longer
/// than a request. The kernel chooses the core at random, and keeps the choice for seconds.
pub(crate) struct SeparateCores(());

impl SeparateCores {
    /// Starts servers on the last core.
    pub(crate) async fn start<S>(servers: impl Future<Output = S>) -> (S, Self) {
        let last = *CORES - 1;
        if last == 0 {
            return (servers.await, Self(()));
        }
        run_on(&last.to_string());
        let servers = servers.await;
        run_on(&format!("0-{}", last - 1));
        (servers, Self(()))
    }
}

impl Drop for SeparateCores {
    fn drop(&mut self) {
        run_on(&format!("0-{}", *CORES - 1));
    }
}

/// Moves this process and its later children to `cores`, with `taskset` of util-linux.
fn run_on(cores: &str) {
    let process = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-p", "-c", cores, &process]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The number of cores at the start of this process.
static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

impl Drop for Awake {
    fn drop(&mut self) {
        for spinning in &mut self.0 {
            // An error means that the loop has already ended.
            let _ = spinning.kill();
            let _ = spinning.wait();
        }
    }
}
