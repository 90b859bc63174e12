//! Obtains the key of a command. A signal ends the wait at once.

use std::io;
use std::time::Duration;

use lease_core::{Attempt, Lease, LeaseOptions, Locker, StoreError};
use rustix::process::Signal;
use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::arguments::WaitingArguments;
use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::messages::{held_by, say};
use crate::output::verbosity::Verbosity;
use crate::signals::Signals;
use crate::store;

/// What a command needs after it has obtained its key.
#[derive(Debug)]
pub(crate) struct Obtained {
    pub(crate) lease: Lease,
    pub(crate) locker: Locker,
    pub(crate) signals: Signals,
}

/// Opens the store and obtains the key. Returns an exit code if another process holds the key, or if a signal
/// arrives first.
pub(crate) async fn obtain(
    context: &Context,
    arguments: &WaitingArguments,
    options: LeaseOptions,
) -> Result<Result<Obtained, Exit>, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::own("no signals", error))?;
    let opened = async { store::locker(store::open(context.url.as_deref()).await?, options) };
    let locker = select! {
        // Polls signals first, so that a signal ends the wait even if the store answers at the same time.
        biased;
        signal = signals.next() => return Ok(Err(interrupted(arguments, signal))),
        opened = opened => opened?,
    };
    let answer = select! {
        biased;
        signal = signals.next() => Err(interrupted(arguments, signal)),
        answer = attempt(&locker, arguments) => match answer? {
            Some(lease) => Ok(lease),
            None => Err(Exit::code(arguments.conflict_exit_code)),
        },
    };
    match answer {
        Ok(lease) => Ok(Ok(Obtained { lease, locker, signals })),
        Err(exit) => {
            // If the store grants the claim late, `close` releases the key, unless the store hangs.
            drop(timeout(LAST_ANSWERS, locker.close()).await);
            Ok(Err(exit))
        }
    }
}

/// Obtains the key within the time limit in `arguments`. Returns `None` if another process holds the key.
async fn attempt(locker: &Locker, arguments: &WaitingArguments) -> Result<Option<Lease>, Failure> {
    let key = &arguments.key;
    let verbosity = arguments.verbosity();
    if arguments.no_wait || verbosity == Verbosity::Verbose {
        match locker.obtain(key).await {
            Ok(Attempt::Obtained(lease)) => return Ok(Some(lease)),
            Ok(Attempt::Held(_)) if arguments.no_wait => return held(locker, arguments).await,
            Ok(Attempt::Held(holder)) => say(&format!("{}; waiting", held_by(key, &holder))),
            Err(error) if arguments.no_wait || !error.is_retryable() => return Err(error.into()),
            Err(error) => say(&format!("{}; waiting", crate::exit::sentence(&error))),
        }
    }
    let wait = locker.wait_until_obtained(key);
    let Some(limit) = arguments.wait else { return Ok(Some(wait.await?)) };
    match timeout(limit, wait).await {
        Ok(lease) => Ok(Some(lease?)),
        Err(_too_late) => held(locker, arguments).await,
    }
}

/// Prints the holder of the key. Fails if the store does not answer, because the key may then be free.
async fn held(locker: &Locker, arguments: &WaitingArguments) -> Result<Option<Lease>, Failure> {
    let key = &arguments.key;
    let holder = locker.holder(key).await.map_err(|error: StoreError| Failure::from(error))?;
    if arguments.verbosity() > Verbosity::Quiet {
        match holder {
            Some(holder) => say(&held_by(key, &holder)),
            None => say(&format!("{key} was held, or is reserved")),
        }
    }
    Ok(None)
}

/// Prints what the user needs to use the key. Each error is a failure, also a closed pipe.
///
/// Another thread prints, so that a full pipe blocks neither heartbeats nor signals.
pub(crate) async fn printed(
    print: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<(), Failure> {
    let printed = spawn_blocking(print).await.map_err(io::Error::other).flatten();
    printed.map_err(|error| Failure::own("output cannot be written", error))
}

/// Waits for a release, but not for long, since the ttl also frees the key. After another signal, waits for a moment.
pub(crate) async fn finish(
    arguments: &WaitingArguments,
    release: impl Future<Output = Result<(), Failure>>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let interrupted = async {
        signals.next().await;
        // Ctrl-C signals the command, too. If the supervisor sees the end of the command first, it does not
        // take the signal, and `signals` returns it here. So the first signal must not stop the release at once.
        sleep(LAST_ANSWERS).await;
    };
    let limit = LONGEST_RELEASE.min(arguments.ttl);
    select! {
        biased;
        released = timeout(limit, release) => released.unwrap_or_else(|_elapsed| {
            let ttl = humantime::format_duration(arguments.ttl);
            let text = format!(
                "store does not answer: {} may stay held until its ttl of {ttl} has passed",
                arguments.key
            );
            Err(Failure::new(Exit::UNAVAILABLE, text))
        }),
        () = interrupted => Ok(()),
    }
}

fn interrupted(arguments: &WaitingArguments, signal: Signal) -> Exit {
    if arguments.verbosity() == Verbosity::Verbose {
        say("interrupted while it waited");
    }
    Exit::signal(signal)
}

/// How long an interrupted wait lets the store answer.
pub(super) const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// How long a store has for the release of a key.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);
