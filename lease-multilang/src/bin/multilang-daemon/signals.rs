//! The signals that stop the daemon.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Sleep, sleep};
use tracing::info;

/// SIGTERM, as a supervisor sends it; SIGINT, as a Ctrl-C does; SIGHUP, as a terminal does that is
/// closed.
pub(crate) struct Signals {
    arrivals: Arrivals,
    repeats: Repeats,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // Before it is listened to: from then on, nobody ignores it.
        let outlives_terminal = ignores_hang_ups();
        let hang_up = (!outlives_terminal).then(|| signal(SignalKind::hangup())).transpose()?;
        let terminate = signal(SignalKind::terminate())?;
        let arrivals = Arrivals { terminate, interrupt: signal(SignalKind::interrupt())?, hang_up };
        Ok(Self { arrivals, repeats: Repeats::default() })
    }

    /// The name of the next signal that is no repeat of the one before.
    ///
    /// # Cancel safety
    ///
    /// Safe: a signal that nobody waits for is returned by the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        let Self { arrivals, repeats } = self;
        repeats.skip(async || arrivals.next().await).await
    }
}

/// Every signal, in the order in which they are looked at.
struct Arrivals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where the daemon is to outlive its terminal.
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

/// Skips signals that repeat the one before.
#[derive(Default)]
struct Repeats {
    /// Runs while each signal is a repeat.
    window: Option<Pin<Box<Sleep>>>,
}

impl Repeats {
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
                // First: a signal that was sent with the one before is its repeat, however late this
                // process runs again.
                signal = arrival() => {
                    if !is_open {
                        self.window = Some(Box::pin(sleep(REPEAT)));
                        return signal;
                    }
                    info!(signal, "signal ignored, it repeats the one of a moment ago");
                }
                () = closed => self.window = None,
            }
        }
    }
}

/// One stop can be sent more than once: GNU `timeout` signals the process and its group, and a terminal
/// its group beside a supervisor. These come within milliseconds; a person who presses Ctrl-C again
/// takes longer than a second to see that the daemon is still there.
const REPEAT: Duration = Duration::from_secs(1);

/// Whether it was started so, as by `nohup`. Linux tells, by one bit for each signal.
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
        let mut repeats = Repeats::default();
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
        assert_eq!(next().await, None, "it was sent with the first");

        advance(Duration::from_millis(900)).await;
        send.send("SIGTERM").unwrap();
        assert_eq!(next().await, None, "a second is not over");

        advance(Duration::from_millis(100)).await;
        assert_eq!(next().await, None);
        send.send("SIGHUP").unwrap();
        assert_eq!(next().await, Some("SIGHUP"), "a second is over");
    }

    #[tokio::test(start_paused = true)]
    async fn repeat_is_skipped_however_late_the_process_runs_again() {
        let (send, mut arrivals) = mpsc::unbounded_channel();
        let mut repeats = Repeats::default();
        send.send("SIGTERM").unwrap();
        send.send("SIGTERM").unwrap();
        repeats.skip(async || arrivals.recv().await.unwrap()).await;

        advance(Duration::from_mins(1)).await;

        let mut next = Box::pin(repeats.skip(async || arrivals.recv().await.unwrap()));
        select! {
            biased;
            _ = &mut next => panic!("it was sent with the first"),
            () = sleep(Duration::from_millis(1)) => (),
        }
    }
}
