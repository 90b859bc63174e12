//! `lease run`: runs a command while it holds a key.

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use lease_core::{Lease, LeaseOptions, Locker, Released, Reservation};

use crate::arguments::RunArguments;
use crate::child::running_time::RunningTime;
use crate::child::supervisor::{Outcome, Place, Plan, Supervisor};
use crate::commands::context::Context;
use crate::commands::obtaining::{self, Obtained};
use crate::exit::{Exit, Failure, sentence};
use crate::output::messages::{log, say};
use crate::output::verbosity::Verbosity;

/// Obtains the key, runs the command, and releases the key after the last process of the command has ended.
pub(crate) async fn run(context: &Context, arguments: &RunArguments) -> Result<Exit, Failure> {
    let waiting = &arguments.waiting;
    let verbosity = waiting.verbosity();
    log(verbosity);
    let options = LeaseOptions::new(waiting.ttl)?;
    let plan = plan(arguments);
    // The lease's grace must be longer than the margin, so that the signal comes before SIGKILL.
    let grace = arguments.grace.max(plan.margin * 2).min(waiting.ttl / 4);
    let options = options.with_grace(grace)?;
    let kept = arguments.keep_for.map(Reservation::new).transpose()?;
    let Obtained { lease, locker, mut signals } =
        match obtaining::obtain(context, waiting, options).await? {
            Ok(obtained) => obtained,
            Err(exit) => return Ok(exit),
        };
    let granted = RunningTime::now();
    if verbosity == Verbosity::Verbose {
        say(&format!("{} obtained with token {}", lease.key(), lease.token()));
    }
    let supervisor = match Supervisor::start(&plan, &lease) {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let release = give_back(lease, &locker, None);
            obtaining::finish(waiting, release, &mut signals).await?;
            return Err(Failure::own("command cannot be started", error));
        }
    };
    let outcome = supervisor.run(&mut signals).await;
    let kept = kept.map(|kept| granted.after(kept.get()).remaining());
    let lost = format!("lease on {} with token {} was lost", lease.key(), lease.token());
    let released = obtaining::finish(waiting, give_back(lease, &locker, kept), &mut signals).await;
    match outcome {
        Outcome::Lost => {
            if verbosity > Verbosity::Quiet {
                say(&format!("{lost}: the command was stopped"));
            }
            Ok(Exit::code(waiting.lost_exit_code))
        }
        Outcome::KeeperDied => Err(Failure::new(
            Exit::OWN_FAULT,
            "the keeper process was killed, so the command was stopped",
        )),
        // The command has ended, and the ttl frees the key. So its exit code matters more.
        Outcome::Ended(exit) => {
            if let Err(failure) = released {
                failure.report();
            }
            Ok(exit)
        }
    }
}

fn plan(arguments: &RunArguments) -> Plan<'_> {
    let ttl = arguments.waiting.ttl;
    let place = if arguments.foreground || stdin().is_terminal() {
        Place::Foreground
    } else {
        Place::OwnGroup
    };
    Plan {
        command: &arguments.command,
        place,
        signal: arguments.signal,
        grace: arguments.grace,
        // Time to be woken and to kill, on a busy machine.
        margin: (ttl / 50).clamp(Duration::from_millis(10), Duration::from_millis(500)),
        // A heartbeat comes every third of the ttl, so the keeper always knows most of it.
        period: (ttl / 12).max(Duration::from_millis(5)),
        lost_exit_code: arguments.waiting.lost_exit_code,
    }
}

/// Releases the key, and reserves it for `kept`.
async fn give_back(lease: Lease, locker: &Locker, kept: Option<Duration>) -> Result<(), Failure> {
    let released = match kept.filter(|kept| !kept.is_zero()) {
        Some(kept) => lease.release_reserved(Reservation::clamped(kept)).await,
        None => lease.release().await,
    };
    match released {
        Ok(Released::Freed) => Ok(()),
        Ok(Released::AlreadyLost(_)) => {
            // The key may still be held for this process, as after an eviction.
            locker.close().await;
            Ok(())
        }
        Err(error) => Err(Failure::new(
            Exit::UNAVAILABLE,
            format!("key not released, and free when its ttl has passed: {}", sentence(&error)),
        )),
    }
}
