//! `lease hold`: holds a key until stdin closes or a signal comes.

use std::io::{Read, stdin};
use std::thread;

use futures_util::TryFutureExt;
use lease_core::LeaseOptions;
use tokio::select;
use tokio::sync::oneshot;

use crate::arguments::{Verbosity, WaitingArguments};
use crate::commands::Context;
use crate::commands::obtaining::{self, Obtained};
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::output::messages::{log, say};

pub(crate) async fn hold(context: &Context, arguments: &WaitingArguments) -> Result<Exit, Failure> {
    log(arguments.verbosity());
    let options = LeaseOptions::new(arguments.ttl)?;
    let Obtained { lease, mut signals, .. } =
        match obtaining::obtain(context, arguments, options).await? {
            Ok(obtained) => obtained,
            Err(exit) => return Ok(exit),
        };
    let record = Record::new().with("token", lease.token().get());
    context.output.print(&record)?;
    let closed = stdin_closed();
    let exit = select! {
        // The loss first: after it, another process may hold the key.
        biased;
        lost = lease.lost() => {
            if arguments.verbosity() > Verbosity::Quiet {
                say(&lost.to_string());
            }
            return Ok(Exit::code(arguments.lost_exit_code));
        }
        signal = signals.next() => Exit::signal(signal),
        _ = closed => Exit::SUCCESS,
    };
    let release = async { lease.release().await.map_err(Failure::from) };
    obtaining::finish(release.map_ok(drop), &mut signals).await?;
    Ok(exit)
}

/// Completes at the end of stdin. A thread reads it, which the end of this process ends.
fn stdin_closed() -> oneshot::Receiver<()> {
    let (send, closed) = oneshot::channel();
    let read = move || {
        let mut buffer = [0; 1024];
        while stdin().read(&mut buffer).is_ok_and(|length| length > 0) {}
        drop(send);
    };
    // Without a thread, the receiver reports the end at once, and the key is released.
    drop(thread::Builder::new().name("stdin".to_owned()).spawn(read));
    closed
}
