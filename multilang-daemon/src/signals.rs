//! What tells the daemon to stop.

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, as a supervisor sends it, and SIGINT, as a Ctrl-C does.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The name of the next.
    pub(crate) async fn next(&mut self) -> &'static str {
        select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
