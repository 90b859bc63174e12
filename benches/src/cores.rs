//! Keeps cores awake, and assigns servers and clients to cores.
//!
//! The kernel or the hypervisor puts an idle core to sleep. Its wake-up takes longer than a whole
//! request on loopback. So a loop at idle priority keeps each core awake.

use std::num::NonZero;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::{io, thread};

pub(crate) struct Awake(Vec<Child>);

impl Awake {
    /// The loops run with `chrt` of util-linux, which Debian has.
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
/// A woken task runs at once if its waker runs on the same core. On another core, the wake-up takes
/// longer than a request. The kernel's random choice of a core lasts for seconds.
pub(crate) struct SeparateCores(());

impl SeparateCores {
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

/// Also moves later children of this process, with `taskset` of util-linux.
fn run_on(cores: &str) {
    let process = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-p", "-c", cores, &process]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

impl Drop for Awake {
    fn drop(&mut self) {
        for spinning in &mut self.0 {
            // The loop may have ended.
            let _ = spinning.kill();
            let _ = spinning.wait();
        }
    }
}
