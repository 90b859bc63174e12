//! Cores that do not fall asleep.
//!
//! A core that has nothing to do is put to sleep, by the kernel or by whatever the machine is a guest
//! of, and takes longer to wake than a whole request on loopback: what is measured then is mostly how
//! long the last wait was. So each core has something to do that gives way to all else.

use std::process::{Child, Command};
use std::{io, thread};

/// Keeps all cores awake for as long as it is there.
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    /// With util-linux' `chrt`, which a Debian machine has.
    pub(crate) fn all_cores() -> io::Result<Self> {
        let cores = thread::available_parallelism()?.get();
        // It ends by itself where this process is killed.
        let spin =
            "while [ -d /proc/$PPID ]; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done";
        let mut awake = Self(Vec::new());
        for _ in 0..cores {
            let spinning = Command::new("chrt").args(["--idle", "0", "sh", "-c", spin]).spawn();
            awake.0.push(spinning?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinning in &mut self.0 {
            // It may have ended by itself.
            let _ = spinning.kill();
            let _ = spinning.wait();
        }
    }
}
