//! Cores that do not fall asleep, and who runs on which.
//!
//! A core that has nothing to do is put to sleep, by the kernel or by whatever the machine is a guest
//! of, and takes longer to wake than a whole request on loopback: what is measured then is mostly how
//! long the last wait was. So each core has something to do that gives way to all else.

use std::num::NonZero;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::{io, thread};

/// Keeps all cores awake for as long as it is there.
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    /// With util-linux' `chrt`, which a Debian machine has.
    pub(crate) fn all_cores() -> io::Result<Self> {
        // It ends by itself where this process is killed.
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

/// Servers have the last core, and this process has the others, as long as this is there.
///
/// Who is woken on the core of whoever wakes it, is there at once, and on another core only after
/// longer than a request takes; where the kernel has put them is chance, and stays so for seconds.
pub(crate) struct Apart(());

impl Apart {
    /// Starts servers.
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

impl Drop for Apart {
    fn drop(&mut self) {
        run_on(&format!("0-{}", *CORES - 1));
    }
}

/// With util-linux' `taskset`; what this process starts from here on runs there, too.
fn run_on(cores: &str) {
    let process = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-p", "-c", cores, &process]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// As many as this process had when it began.
static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

impl Drop for Awake {
    fn drop(&mut self) {
        for spinning in &mut self.0 {
            // It may have ended by itself.
            let _ = spinning.kill();
            let _ = spinning.wait();
        }
    }
}
