//! The signals that end a wait, and that `lease run` forwards to its command.

use std::io;
use std::task::Poll;

use futures_util::future::poll_fn;
use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// Receives SIGTERM, SIGINT, SIGHUP and SIGQUIT.
///
/// A signal that this process ignored at its start stays ignored, as for a command under `nohup`.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // The process that started this one may have blocked them.
        SigSet::all().thread_unblock()?;
        // Read before listening, because a handler replaces the ignored disposition.
        let ignored = ignored_signals();
        let heard = FORWARDED.into_iter().filter(|one| ignored & (1 << (one.as_raw() - 1)) == 0);
        let streams = heard
            .map(|one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { streams })
    }

    /// Returns the next signal. Never completes if all four are ignored.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call returns a signal that arrived meanwhile.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The mask of ignored signals: one bit per signal, as Linux shows it.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

const FORWARDED: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
