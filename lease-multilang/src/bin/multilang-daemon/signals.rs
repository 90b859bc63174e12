//! The signals that stop the daemon.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Sleep, sleep};
use tracing::info;

/// SIGTERM from supervisors, SIGINT from Ctrl-C, and SIGHUP from a closed terminal.
pub(crate) struct Signals {
    arrivals: Arrivals,
    repeats: RepeatFilter,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // Reads the ignored signals before `signal` installs handlers, because a handler of SIGHUP would
        // replace the setting "ignored" that `nohup` makes.
        let outlives_terminal = ignores_hang_ups();
        let hang_up = (!outlives_terminal).then(|| signal(SignalKind::hangup())).transpose()?;
        let terminate = signal(SignalKind::terminate())?;
        let arrivals = Arrivals { terminate, interrupt: signal(SignalKind::interrupt())?, hang_up };
        Ok(Self { arrivals, repeats: RepeatFilter::default() })
    }

    /// Skips signals within a second after the last returned signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        let Self { arrivals, repeats } = self;
        repeats.skip(async || arrivals.next().await).await
    }
}

/// The signals, in the order in which they are polled.
struct Arrivals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if the daemon must continue after its terminal has closed.
    hang_up: Option<Signal>,
}

impl Arrivals {
    async fn next(&mut self) -> &'static str {
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

#[derive(Default)]
struct RepeatFilter {
    /// While this timer runs, every signal is a repeat.
    window: Option<Pin<Box<Sleep>>>,
}

impl RepeatFilter {
    async fn skip(&mut self, mut arrival: impl AsyncFnMut() -> &'static str) -> &'static str {
        loop {
            let is_open = self.window.is_some();
            let closed = async {
                match &mut self.window {
                    Some(window) => window.await,
                    None => pending().await,
                }
            };
            select! {
                biased;
                // Polls signals first: if this process was paused, the window may have ended although a
                // repeat of that time is still pending.
                signal = arrival() => {
                    if !is_open {
                        self.window = Some(Box::pin(sleep(REPEAT)));
                        return signal;
                    }
                    info!(signal, "signal ignored as a repeat");
                }
                () = closed => self.window = None,
            }
        }
    }
}

/// One request to stop may send several signals within milliseconds: GNU `timeout` signals the process and
/// then its group. A person needs more than a second before the next Ctrl-C.
const REPEAT: Duration = Duration::from_secs(1);

/// Returns whether this process ignores SIGHUP, for example under `nohup`. Linux shows the ignored signals as a
/// mask with one bit per signal.
fn ignores_hang_ups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let hang_up = 1 << (SignalKind::hangup().as_raw_value() - 1);
    ignored.unwrap_or_default() & hang_up != 0
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn signal_within_a_second_of_the_first_is_skipped() {
        let (send, mut arrivals) = mpsc::unbounded_channel();
        let mut repeats = RepeatFilter::default();
        let mut next = async || {
            let arrival = async || arrivals.recv().await.unwrap();
            select! {
                biased;
                signal = repeats.skip(arrival) => Some(signal),
                () = sleep(Duration::from_millis(1)) => None,
            }
        };

        send.send("SIGTERM").unwrap();
        send.send("SIGINT").unwrap();
        assert_eq!(next().await, Some("SIGTERM"));
        assert_eq!(next().await, None, "a signal that arrives together with the first is skipped");

        advance(Duration::from_millis(900)).await;
        send.send("SIGTERM").unwrap();
        assert_eq!(next().await, None, "a signal less than a second later is skipped");

        advance(Duration::from_millis(100)).await;
        assert_eq!(next().await, None);
        send.send("SIGHUP").unwrap();
        assert_eq!(next().await, Some("SIGHUP"), "a signal a second later is returned");
    }

    #[tokio::test(start_paused = true)]
    async fn repeat_is_skipped_after_a_pause_of_the_process() {
        let (send, mut arrivals) = mpsc::unbounded_channel();
        let mut repeats = RepeatFilter::default();
        send.send("SIGTERM").unwrap();
        send.send("SIGTERM").unwrap();
        repeats.skip(async || arrivals.recv().await.unwrap()).await;

        advance(Duration::from_mins(1)).await;

        let mut next = Box::pin(repeats.skip(async || arrivals.recv().await.unwrap()));
        select! {
            biased;
            _ = &mut next => panic!("the repeat was not skipped"),
            () = sleep(Duration::from_millis(1)) => (),
        }
    }
}
