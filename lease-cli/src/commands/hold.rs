//! `lease hold`: holds a key until stdin closes or a signal comes.

use std::io::{ErrorKind, Read, stdin};
use std::thread;

use futures_util::TryFutureExt;
use lease_core::LeaseOptions;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::select;
use tokio::sync::oneshot;

use crate::arguments::WaitingArguments;
use crate::commands::context::Context;
use crate::commands::obtaining::{self, Obtained};
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::output::messages::{log, say};
use crate::output::verbosity::Verbosity;

pub(crate) async fn hold(context: &Context, arguments: &WaitingArguments) -> Result<Exit, Failure> {
    log(arguments.verbosity());
    let options = LeaseOptions::new(arguments.ttl)?;
    let Obtained { lease, locker, mut signals } =
        match obtaining::obtain(context, arguments, options).await? {
            Ok(obtained) => obtained,
            Err(exit) => return Ok(exit),
        };
    let record = Record::new().with("token", lease.token().get());
    let output = context.output;
    let closed = async {
        obtaining::printed(move || output.print(&record)).await?;
        // An error is the end: the thread sends no value.
        drop(stdin_closed().await);
        Ok::<_, Failure>(Exit::SUCCESS)
    };
    let end = select! {
        // The loss first: after it, another process may hold the key.
        biased;
        lost = lease.lost() => {
            if arguments.verbosity() > Verbosity::Quiet {
                say(&lost.to_string());
            }
            drop(lease);
            // The key may still be held for this process, as after an eviction.
            let close = async {
                locker.close().await;
                Ok(())
            };
            if let Err(failure) = obtaining::finish(arguments, close, &mut signals).await {
                failure.report();
            }
            return Ok(Exit::code(arguments.lost_exit_code));
        }
        signal = signals.next() => Ok(Exit::signal(signal)),
        end = closed => end,
    };
    let release = lease.release().map_ok(drop).map_err(Failure::from);
    let released = obtaining::finish(arguments, release, &mut signals).await;
    // Why the key was released is more important.
    let exit = end?;
    released?;
    Ok(exit)
}

/// Completes at the end of stdin. A thread reads it, which the end of this process ends.
fn stdin_closed() -> oneshot::Receiver<()> {
    let (send, closed) = oneshot::channel();
    let read = move || {
        read_to_end();
        drop(send);
    };
    // Without a thread, the receiver reports the end at once, and the key is released.
    drop(thread::Builder::new().name("stdin".to_owned()).spawn(read));
    closed
}

fn read_to_end() {
    let mut input = stdin();
    let mut buffer = [0; 1024];
    loop {
        match input.read(&mut buffer).map_err(|error| error.kind()) {
            Ok(1..) | Err(ErrorKind::Interrupted) => (),
            // Another process that has this pipe has made it nonblocking.
            Err(ErrorKind::WouldBlock) => {
                let mut events = [PollFd::new(&input, PollFlags::IN)];
                if poll(&mut events, None).is_err_and(|error| error != Errno::INTR) {
                    return;
                }
            }
            Ok(0) | Err(_) => return,
        }
    }
}
