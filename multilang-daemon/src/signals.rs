//! What tells the daemon to stop.

use std::future::pending;
use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, as a supervisor sends it; SIGINT, as a Ctrl-C does; SIGHUP, as a terminal does that is
/// closed.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where the daemon is to outlive its terminal.
    hang_up: Option<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // Before it is listened to: from then on, nobody ignores it.
        let outlives_terminal = ignores_hang_ups();
        let hang_up = (!outlives_terminal).then(|| signal(SignalKind::hangup())).transpose()?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())?, hang_up })
    }

    /// The name of the next.
    ///
    /// # Cancel safety
    ///
    /// Safe: what nobody waits for is told at the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        let hung_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => pending().await,
            }
        };
        select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hung_up => "SIGHUP",
        }
    }
}

/// Whether it was started so, as by `nohup`. Linux tells, by one bit for each signal.
fn ignores_hang_ups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let hang_up = 1 << (SignalKind::hangup().as_raw_value() - 1);
    ignored.unwrap_or_default() & hang_up != 0
}
